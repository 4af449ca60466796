//! Implements the *limits* of null calls by many callers across a network: the smallest programs that move
//! the same data, with which Peregrine is compared. The callers send messages, and the same number of server
//! threads send the messages back. All threads sleep while they wait.
//!
//! Each caller has a connected socket. In `echo-each`, each server thread has its own socket, so the kernel
//! wakes exactly the thread that a packet is for. In `echo-shared`, all server threads share one socket, and
//! any free thread takes the next packet. Calls are counted during a *window*, an interval in which all
//! callers are active. The time of a row is the length of the window divided by the number of all calls in
//! the window.

use std::io;
use std::net::{IpAddr, SocketAddr};

use peregrine::sys::{Address, Datagrams, IfFull};
use peregrine::value::{Space, Window};

use super::far::{Far, Order, listening};
use super::wire::HEADER;
use crate::window::{self, Counted, now_ns};

/// The message that ends a serving thread. It is shorter than the message of any call.
const END: [u8; 1] = [0];

/// Answers messages with `threads` threads until each thread has received the end message.
pub(crate) fn serve(
    at: IpAddr,
    threads: usize,
    shared: bool,
    announce: impl FnOnce(&[SocketAddr]) -> io::Result<()>,
) -> io::Result<()> {
    let count = if shared { 1 } else { threads };
    let sockets: Vec<_> = (0..count).map(|_| listening(at)).collect::<io::Result<_>>()?;
    let addresses: Vec<_> = sockets.iter().map(|(_, address)| *address).collect();
    std::thread::scope(|scope| {
        let serving: Vec<_> = (0..threads)
            .map(|thread| {
                let (socket, _) = &sockets[thread % count];
                scope.spawn(|| answer(socket))
            })
            .collect();
        announce(&addresses)?;
        let ended = serving
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect()
    })
}

fn answer(socket: &Datagrams) -> io::Result<()> {
    let (mut message, mut from) = ([0; 2 * HEADER], Address::default());
    loop {
        let arrival = socket.receive(Space::of_mut(&mut message), Some(&mut from), false)?;
        if arrival.bytes == END.len() {
            return Ok(());
        }
        socket.send(Window::of(&message[..arrival.bytes]), Some(&from), IfFull::Wait)?;
    }
}

/// Runs `callers` threads that make calls in a window. Returns the counts of each thread.
pub(crate) fn call(
    far: &mut Far,
    callers: usize,
    shared: bool,
    window: impl FnOnce(u64) -> window::Window,
) -> io::Result<Vec<Counted>> {
    let addresses = far.order(Order::Echo(callers, shared))?;
    let sockets: Vec<Datagrams> = (0..callers)
        .map(|caller| {
            let to = Address::from(addresses[caller % addresses.len()]);
            let socket = Datagrams::new(&to)?;
            socket.connect(&to)?;
            Ok(socket)
        })
        .collect::<io::Result<_>>()?;
    let window = window(now_ns());
    let counted = std::thread::scope(|scope| {
        let call = |socket: &Datagrams| {
            let mut message = [0xa5; HEADER];
            window.count(now_ns, || {
                socket.send(Window::of(&message), None, IfFull::Wait)?;
                socket.receive(Space::of_mut(&mut message), None, false).map(|_| ())
            })
        };
        let threads: Vec<_> =
            sockets.iter().map(|socket| scope.spawn(move || call(socket))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<io::Result<_>>()
    })?;
    // One end message is sent for each caller, because there is one server thread for each caller.
    for socket in &sockets {
        socket.send(Window::of(&END), None, IfFull::Wait)?;
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn threads_answer_until_each_receives_the_end_message() {
        for shared in [false, true] {
            let (sender, receiver) = mpsc::channel();
            std::thread::scope(|scope| {
                let at = IpAddr::from([127, 0, 0, 1]);
                let announce = move |addresses: &[SocketAddr]| {
                    sender.send(addresses.to_vec()).map_err(io::Error::other)
                };
                scope.spawn(move || serve(at, 3, shared, announce).unwrap());
                let addresses: Vec<SocketAddr> = receiver.recv().unwrap();
                assert_eq!(addresses.len(), if shared { 1 } else { 3 });
                for caller in 0..3 {
                    let to = Address::from(addresses[caller % addresses.len()]);
                    let socket = Datagrams::new(&to).unwrap();
                    socket.connect(&to).unwrap();
                    let mut message = [7; HEADER];
                    socket.send(Window::of(&message), None, IfFull::Wait).unwrap();
                    let received = socket.receive(Space::of_mut(&mut message), None, false);
                    assert_eq!(received.unwrap().bytes, HEADER);
                    socket.send(Window::of(&END), None, IfFull::Wait).unwrap();
                }
            });
        }
    }
}
