//! In safe code, two threads can access shared memory at the same time only by atomics.

use std::thread;

use peregrine::sys::Memory;
use peregrine::value::{Arriving, Departing, Space, Window};
use peregrine::{Lent, Out};

fn writers_of_one_memory(memory: &Memory) {
    thread::scope(|scope| {
        scope.spawn(|| memory.space_mut().write(0, &[1; 64]));
        scope.spawn(|| memory.space_mut().write(0, &[2; 64]));
    });
}

fn shared_memory_as_a_space(memory: &Memory) -> Space<'_> {
    memory.space()
}

fn space_of_another_thread(space: Space<'_>) {
    thread::scope(|scope| {
        scope.spawn(move || space.write(0, &[1; 64]));
    });
}

fn window_of_another_thread(window: Window<'_>) {
    thread::scope(|scope| {
        scope.spawn(move || window.read(0, &mut [0; 64]));
    });
}

fn buffers_of_one_space(space: Space<'_>, filled: &mut usize) {
    let _out = Out::<u8>::of_space(Departing::new(space, 0, None), filled);
    let _lent = Lent::<u8>::of_bytes(Arriving::new(space.window(), 0, None));
}

fn main() {}
