//! The program of the chapter about buffers and sizes in docs/GUIDE.md.

use peregrine::{Lent, Out, Plain, Server, interface};

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub struct Sample {
    at_ns: u64,
    value: f64,
}

/// Statistics on samples.
#[interface]
pub trait Samples {
    /// In: the server gets a copy, which cannot change while the procedure runs.
    fn mean(&self, #[max_len(100_000)] samples: &[Sample]) -> peregrine::Result<f64>;
    /// Lent: an in parameter that is not copied for the procedure.
    fn bytes(&self, file: Lent<'_, u8>) -> peregrine::Result<u64>;
    /// Out: the procedure fills the buffer of the caller.
    fn ramp(&self, into: Out<'_, Sample>) -> peregrine::Result<()>;
    /// In-out: the values travel with the call, and back with the result.
    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
}

struct Statistics;

impl Samples for Statistics {
    fn mean(&self, samples: &[Sample]) -> peregrine::Result<f64> {
        Ok(samples.iter().map(|sample| sample.value).sum::<f64>() / samples.len() as f64)
    }
    fn bytes(&self, file: Lent<'_, u8>) -> peregrine::Result<u64> {
        Ok(file.len() as u64)
    }
    fn ramp(&self, mut into: Out<'_, Sample>) -> peregrine::Result<()> {
        for i in 0..into.capacity() as u64 {
            let _ = into.put(&[Sample { at_ns: i, value: i as f64 }]);
        }
        Ok(())
    }
    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()> {
        values.sort_unstable();
        Ok(())
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("samples", SamplesServer::new(Statistics))?.spawn()?;
    let samples = SamplesClient::bind("samples")?;

    let mut ramp = Vec::with_capacity(100);
    samples.ramp(Out::from(&mut ramp))?;
    println!("{} samples, mean {}", ramp.len(), samples.mean(&ramp)?);

    let file = vec![0; 100_000];
    println!("{} bytes", samples.bytes(Lent::from(&file[..]))?);

    let mut values = [3, 1, 2];
    samples.sort(&mut values)?;
    println!("{values:?}");

    let many = vec![ramp[0]; 100_001];
    if let Err(error) = samples.mean(&many) {
        println!("{:?}: {}", error.kind(), error.detail());
    }
    Ok(())
}
