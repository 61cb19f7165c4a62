//! The server's end of the connections, as tasks of one thread in its namespace.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::client::{GREETING_LEN, MESSAGE_LEN, Task};
use super::content::{Content, Sender};

/// Accepts connections until the runtime ends.
pub(super) async fn listen(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(async move {
                    // An error here is seen by the home: its connection ends.
                    let _ = serve(stream).await;
                });
            }
            // A connection that was reset before it was accepted, or no descriptors: the home sees
            // it.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener> {
    Ok(TcpListener::bind(address).await?)
}

async fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting).await?;
    let (number, task) = Task::from_greeting(greeting)?;
    let mut to_home = Content::of(number, Sender::Server);
    match task {
        Task::Answer => answer(stream, number, to_home).await,
        Task::Send { bytes, interval } => {
            let mut chunk = vec![0; bytes as usize];
            loop {
                to_home.fill(&mut chunk);
                stream.write_all(&chunk).await?;
                sleep(interval).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, number: u32, mut to_home: Content) -> Result<()> {
    let mut from_home = Content::of(number, Sender::Home);
    let mut message = [0; MESSAGE_LEN];
    loop {
        stream.read_exact(&mut message).await?;
        let checked = from_home.check(&message);
        // Wrong bytes end the connection.
        checked.map_err(|position| anyhow::anyhow!("wrong byte {position}"))?;
        to_home.fill(&mut message);
        stream.write_all(&message).await?;
    }
}
