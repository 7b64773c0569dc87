//! The settings of the `link` peer, read from the command line.

use onbeat_peers::protocol::Words;
use std::net::SocketAddr;

/// A stream of messages. On the command line it is `PRIORITY,BYTES,PERIOD_NS,COUNT,OFFSET_NS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    pub id: u32,
    pub priority: u8,
    pub bytes: usize,
    /// The time between two messages in ns. With 0, each message follows as soon as the receiver
    /// has taken the previous one.
    pub period_ns: i64,
    pub count: u64,
    pub offset_ns: i64,
}

impl Stream {
    fn parse(id: u32, text: &str) -> Option<Stream> {
        let mut parts = text.split(',');
        let mut next = || parts.next()?.parse::<i64>().ok();
        let stream = Stream {
            id,
            priority: u8::try_from(next()?).ok()?,
            bytes: usize::try_from(next()?).ok()?,
            period_ns: next()?,
            count: u64::try_from(next()?).ok()?,
            offset_ns: next()?,
        };
        let whole = stream.bytes >= 48 && stream.bytes.is_multiple_of(16);
        (whole && parts.next().is_none()).then_some(stream)
    }
}

#[derive(Debug)]
pub struct Settings {
    pub words: Words,
    pub sends: bool,
    pub streams: Vec<Stream>,
    pub host: std::net::IpAddr,
    pub first_port: u16,
    pub credits: usize,
    /// The number of messages that a stream sends before the next stream sends. `None` if streams
    /// do not take turns.
    pub turn: Option<u64>,
    /// Whether the peers compute the two parts of the thesis's neural network (Figure 5.15): the
    /// sender computes the first part before sending, the receiver the second part after receiving.
    pub network: bool,
}

impl Settings {
    pub fn read() -> Result<Settings, String> {
        let words = Words::of_command_line();
        let ids = words.text("streams")?.split(',');
        let stream = |id: &str| {
            let number = id
                .parse()
                .map_err(|_| format!("'{id}' is not the number of a stream"))?;
            let text = words.text(&format!("s{id}"))?;
            Stream::parse(number, text).ok_or_else(|| {
                format!(
                    "s{id}={text} is not a stream: write PRIORITY,BYTES,PERIOD_NS,COUNT,OFFSET_NS"
                )
            })
        };
        let streams = ids.map(stream).collect::<Result<Vec<_>, String>>()?;
        let host = words.text("host")?;
        Ok(Settings {
            sends: words.text("side")? == "send",
            streams,
            host: host
                .parse()
                .map_err(|_| format!("'{host}' is not an IP address"))?,
            first_port: words.number("port")?,
            credits: words.number("credits").unwrap_or(4),
            turn: words.number("turn").ok(),
            network: words.text("network").is_ok(),
            words,
        })
    }

    pub fn address(&self, stream: &Stream) -> SocketAddr {
        SocketAddr::new(self.host, self.first_port + stream.id as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_settings_are_parsed_and_malformed_ones_refused() {
        let stream = Stream::parse(1, "2,1024,1000000,50,7").unwrap();
        assert_eq!((stream.priority, stream.bytes), (2, 1024));
        assert_eq!((stream.count, stream.offset_ns), (50, 7));
        for wrong in [
            "",
            "2,1024,1,1",
            "2,1000,1,1,1",
            "2,16,1,1,1",
            "2,64,1,1,1,1",
        ] {
            assert_eq!(Stream::parse(0, wrong), None, "{wrong}");
        }
    }
}
