//! Implements a call in a conventional way: a message through a Unix socket, and an answer through the same
//! socket.

use std::hint::black_box;
use std::path::PathBuf;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    connect, listen, recv, send, socket_with,
};

use crate::orders::{ChildSlot, Order, Report};
use crate::peers::{ANSWER, call_as_ordered};
use crate::subject::Failure;

fn address(bytes: usize) -> Result<SocketAddrUnix, Failure> {
    let path: PathBuf = crate::run_directory::of_this_run()?.join(format!(".seqpacket-{bytes}"));
    Ok(SocketAddrUnix::new(&path)?)
}

fn socket() -> rustix::io::Result<rustix::fd::OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Answers messages of `bytes` bytes.
pub(crate) fn serve(mut slot: ChildSlot, bytes: usize) -> Result<(), Failure> {
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
    slot.ready();
    // The serving thread blocks while there are no messages, so no command has to stop it.
    while let Some(order) = slot.next() {
        if order == Order::Idle {
            slot.report(Report::default());
        }
    }
    Ok(())
}

/// Sends messages of `bytes` bytes. Each command says how many messages to send.
pub(crate) fn call(slot: ChildSlot, bytes: usize) -> Result<(), Failure> {
    let server = socket()?;
    connect(&server, &address(bytes)?)?;
    let message = vec![0xa5; bytes];
    let mut answer = [0];
    call_as_ordered(slot, |_| {
        send(&server, black_box(&message[..]), SendFlags::NOSIGNAL)?;
        match recv(&server, &mut answer[..], RecvFlags::empty())?.0 {
            0 => Err("the server has closed the connection".into()),
            _ => Ok(()),
        }
    })
}
