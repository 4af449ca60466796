//! A call as programs have made it for decades: a message through a socket, and its answer.

use std::hint::black_box;
use std::path::PathBuf;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    connect, listen, recv, send, socket_with,
};

use crate::orders::{Order, Post, Report};
use crate::peers::{ANSWER, call_as_ordered, room};
use crate::subject::Failure;

fn address(bytes: usize) -> Result<SocketAddrUnix, Failure> {
    let path: PathBuf = room()?.join(format!(".seqpacket-{bytes}"));
    Ok(SocketAddrUnix::new(&path)?)
}

fn socket() -> rustix::io::Result<rustix::fd::OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Answers messages of so many bytes.
pub(crate) fn serve(mut post: Post, bytes: usize) -> Result<(), Failure> {
    let listener = socket()?;
    bind(&listener, &address(bytes)?)?;
    listen(&listener, 1)?;
    std::thread::spawn(move || {
        let client = accept(&listener)?;
        let mut message = vec![0; bytes];
        while recv(&client, &mut message[..], RecvFlags::empty())?.0 > 0 {
            black_box(&message);
            send(&client, &[ANSWER], SendFlags::NOSIGNAL)?;
        }
        Ok::<(), rustix::io::Errno>(())
    });
    post.ready();
    // It sleeps by itself while nobody calls.
    while let Some(order) = post.next() {
        if order == Order::Rest {
            post.report(Report::default());
        }
    }
    Ok(())
}

/// Sends messages of so many bytes, as often as it is told to.
pub(crate) fn call(post: Post, bytes: usize) -> Result<(), Failure> {
    let server = socket()?;
    connect(&server, &address(bytes)?)?;
    let message = vec![0xa5; bytes];
    let mut answer = [0];
    call_as_ordered(post, |_| {
        send(&server, black_box(&message[..]), SendFlags::NOSIGNAL)?;
        match recv(&server, &mut answer[..], RecvFlags::empty())?.0 {
            0 => Err("the server has gone".into()),
            _ => Ok(()),
        }
    })
}
