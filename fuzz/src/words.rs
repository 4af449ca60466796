//! Compares the words of an A-stack, by which the two sides pass a call to each other, with a model. The
//! model follows the table in `docs/PROTOCOL.md`.

use peregrine::fuzzing::{Word, WordLook, WordNotify};

/// A word, as `docs/PROTOCOL.md` defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    Away,
    Posted(u32),
    Sleep,
    Dead,
    Looking,
    /// A word whose kind (the low three bits) is reserved or unused. Or a word of a known kind whose upper
    /// bits are not zero although they must be.
    Other(u32),
}

use Model::{Away, Dead, Looking, Other, Posted, Sleep};

impl Model {
    fn of(value: u32) -> Self {
        match (value & 7, value >> 3) {
            (0, 0) => Away,
            (1, sequence) => Posted(sequence),
            (2, 0) => Sleep,
            (3, 0) => Dead,
            (5, 0) => Looking,
            _ => Other(value),
        }
    }

    fn value(self) -> u32 {
        match self {
            Away => 0,
            Posted(sequence) => sequence << 3 | 1,
            Sleep => 2,
            Dead => 3,
            Looking => 5,
            Other(value) => value,
        }
    }
}

/// Returns a value for a word. Often this is one of the 32 smallest or of the 32 largest numbers. Otherwise
/// it is the number in `bytes`.
fn value(bytes: [u8; 4]) -> u32 {
    match bytes[0] {
        0..128 => u32::from(bytes[0] & 31),
        128..192 => u32::MAX - u32::from(bytes[0] & 31),
        _ => u32::from_le_bytes(bytes),
    }
}

/// Does the same operations on a word and on the model. The input contains five bytes for each operation. The
/// first of the five bytes selects the operation.
pub fn run(bytes: &[u8]) {
    let word = Word::default();
    let (mut model, mut sequence) = (Away, 0u32);
    for step in bytes.as_chunks::<5>().0 {
        let [what, rest @ ..] = *step;
        let given = value(rest);
        match what % 8 {
            0 => {
                sequence = if what & 8 == 0 { sequence.wrapping_add(1) } else { given };
                let (message, debt) = word.post(sequence);
                assert_eq!(message, (sequence << 3) | 1);
                let owed = match model {
                    Sleep => WordNotify::Wake,
                    Away => WordNotify::Ring,
                    _ => WordNotify::Nothing,
                };
                assert_eq!(debt, owed, "{model:?}");
                model = Posted(sequence & (u32::MAX >> 3));
            }
            1 => {
                let seen = if what & 8 == 0 { model.value() } else { given };
                let expected = match model {
                    Posted(_) if model.value() != seen => WordLook::Posted(model.value()),
                    Dead => WordLook::Dead,
                    _ => WordLook::Nothing(model.value()),
                };
                assert_eq!(word.look(seen), expected);
            }
            2 => {
                let saw = if what & 8 == 0 { model.value() } else { given };
                let asleep = saw == 2 || saw == model.value();
                assert_eq!(word.mark_asleep(saw), asleep);
                if saw == model.value() {
                    model = Sleep;
                }
            }
            3 => {
                word.mark_present();
                if model == Away {
                    model = Looking;
                }
            }
            4 => {
                let saw = if what & 8 == 0 { model.value() } else { given };
                assert_eq!(word.mark_away(saw), saw == model.value());
                if saw == model.value() {
                    model = Away;
                }
            }
            5 => {
                word.mark_dead();
                if !matches!(model, Posted(_)) {
                    model = Dead;
                }
            }
            6 => {
                assert_eq!(word.mark_awake(), model == Sleep);
                if model == Sleep {
                    model = Looking;
                }
            }
            _ => {
                word.overwrite(given);
                model = Model::of(given);
            }
        }
        assert_eq!(word.value(), model.value(), "{step:?}");
    }
}
