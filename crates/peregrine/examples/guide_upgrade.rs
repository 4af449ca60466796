//! The program of the chapter about upgrades without a stop in docs/GUIDE.md.

use peregrine::{Result, Server};

/// The interface before the upgrade.
mod old {
    use peregrine::{Result, Value, interface};

    #[derive(Debug, Value)]
    pub(crate) struct Item {
        pub(crate) name: String,
        #[widens]
        pub(crate) price: u32,
    }

    #[derive(Debug, Value)]
    pub(crate) enum Payment {
        Cash,
        #[other]
        Unknown(String),
    }

    #[interface]
    pub(crate) trait Shop {
        fn find(&self, name: &str) -> Result<Item>;
        fn order(&self, item: &str, payment: &Payment) -> Result<String>;
    }

    pub(crate) struct Shelf;

    impl Shop for Shelf {
        fn find(&self, name: &str) -> Result<Item> {
            Ok(Item { name: name.into(), price: 3 })
        }
        fn order(&self, item: &str, payment: &Payment) -> Result<String> {
            Ok(format!("{item} for {payment:?}"))
        }
    }
}

/// The interface after the upgrade.
mod new {
    use peregrine::{Result, Value, interface};

    #[derive(Debug, Value)]
    pub(crate) struct Item {
        pub(crate) name: String,
        #[default("piece")]
        pub(crate) unit: String,
        #[widens]
        pub(crate) price: u64,
        pub(crate) note: Option<String>,
    }

    #[derive(Debug, Value)]
    pub(crate) enum Payment {
        Cash,
        Card,
        #[other]
        Unknown(String),
    }

    #[interface]
    pub(crate) trait Shop {
        fn find(&self, name: &str) -> Result<Item>;
        #[was("order")]
        fn buy(&self, item: &str, payment: &Payment, #[default(1)] count: u32) -> Result<String>;
        fn refill(&self) -> Result<()>;
    }

    pub(crate) struct Shelf;

    impl Shop for Shelf {
        fn find(&self, name: &str) -> Result<Item> {
            Ok(Item { name: name.into(), unit: "kg".into(), price: 4, note: None })
        }
        fn buy(&self, item: &str, payment: &Payment, count: u32) -> Result<String> {
            Ok(format!("{count} {item} for {payment:?}"))
        }
        fn refill(&self) -> Result<()> {
            Ok(())
        }
    }
}

/// Makes calls as a program that was built before the upgrade.
fn old_client(shop: &old::ShopClient) -> Result<()> {
    use old::Shop as _;
    println!("  old client: {:?}", shop.find("tea")?);
    println!("  old client: {}", shop.order("tea", &old::Payment::Cash)?);
    Ok(())
}

/// Makes calls as a program that was built after the upgrade.
fn new_client(shop: &new::ShopClient) -> Result<()> {
    use new::Shop as _;
    println!("  new client: {:?}", shop.find("tea")?);
    println!("  new client: {}", shop.buy("tea", &new::Payment::Card, 2)?);
    println!("  new client: the server lacks {:?}", shop.binding().lacks());
    if let Err(error) = shop.refill() {
        println!("  new client: {:?}: {}", error.kind(), error.executed());
    }
    Ok(())
}

fn main() -> Result<()> {
    println!("old server");
    let running = Server::new().export("shop", old::ShopServer::new(old::Shelf))?.spawn()?;
    let clients = (old::ShopClient::bind("shop")?, new::ShopClient::bind("shop")?);
    old_client(&clients.0)?;
    new_client(&clients.1)?;

    drop(running);
    println!("new server");
    let _running = Server::new().export("shop", new::ShopServer::new(new::Shelf))?.spawn()?;
    // The clients bind again before these calls.
    old_client(&clients.0)?;
    new_client(&clients.1)
}
