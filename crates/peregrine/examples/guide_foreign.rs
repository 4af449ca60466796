//! Old systems, other systems: a chapter of docs/GUIDE.md.

use peregrine::foreign::Foreign;
use peregrine::{Server, Value, interface};
use std::collections::HashMap;
use std::sync::Mutex;

/// What a station has measured.
#[derive(Clone, Debug, PartialEq, Value, Foreign)]
struct Reading {
    station: u32,
    #[foreign(max = 64)]
    place: String,
    celsius: f32,
    sky: Sky,
}

/// An enumeration: its numbers are those of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Value, Foreign)]
#[repr(u32)]
enum Sky {
    Clear = 0,
    Clouds = 1,
}

/// Version 1 of the program 0x20000042 of ONC RPC.
#[interface(onc(program = 0x2000_0042, version = 1))]
trait Weather {
    /// Stores a reading, and returns how many stations there are.
    #[onc(1)]
    fn report(&self, reading: &Reading) -> peregrine::Result<u32>;
    /// Returns the last reading of a station.
    #[onc(2)]
    fn latest(&self, station: u32) -> peregrine::Result<Option<Reading>>;
}

#[derive(Default)]
struct Stations(Mutex<HashMap<u32, Reading>>);

impl Weather for Stations {
    fn report(&self, reading: &Reading) -> peregrine::Result<u32> {
        let mut stations = self.0.lock().expect("no panic while it was locked");
        stations.insert(reading.station, reading.clone());
        Ok(stations.len() as u32)
    }
    fn latest(&self, station: u32) -> peregrine::Result<Option<Reading>> {
        Ok(self.0.lock().expect("no panic while it was locked").get(&station).cloned())
    }
}

fn main() -> peregrine::Result<()> {
    let running = Server::new()
        .export("weather", WeatherServer::new(Stations::default()))?
        .listen("tcp:127.0.0.1:0")?
        .listen("onc+udp:127.0.0.1:0")?
        .listen("onc+tcp:127.0.0.1:0")?
        .spawn()?;
    let own = WeatherClient::bind("local:weather")?;
    let reading = Reading { station: 7, place: "Säntis".into(), celsius: -4.5, sky: Sky::Clear };
    own.report(&reading)?;
    for endpoint in running.addresses() {
        let address = endpoint.to_string();
        let address = match address.strip_prefix("tcp:") {
            Some(place) => format!("tcp:weather@{place}"),
            None => address,
        };
        let client = WeatherClient::bind(&address)?;
        assert_eq!(client.latest(7)?, Some(reading.clone()));
        let path = client.binding().explain().chosen().map(|path| path.to_string());
        println!("station 7 over {}: -4.5 degrees", path.unwrap_or_default());
    }
    Ok(())
}
