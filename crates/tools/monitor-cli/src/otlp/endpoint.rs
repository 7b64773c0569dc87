//! Parses the address of a collector. Pure.

use std::fmt;
use std::str::FromStr;

/// The port at which OpenTelemetry collectors usually take metrics over HTTP.
const PORT: u16 = 4318;
const PATH: &str = "/v1/metrics";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host name or IP address of the collector. An IPv6 address is stored without brackets.
    pub host: String,
    pub port: u16,
    pub path: String,
}

impl Endpoint {
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        const HELP: &str = "write http://HOST:PORT, like http://127.0.0.1:4318";
        let (scheme, rest) = text.split_once("://").ok_or(HELP)?;
        if scheme.eq_ignore_ascii_case("https") {
            return Err(
                "onbeat does not encrypt. Run a collector on this machine that forwards to \
                the https address, and write http://127.0.0.1:4318"
                    .into(),
            );
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(HELP.into());
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let is_path = |c: char| c.is_ascii_graphic() && c != '#';
        if !path.chars().all(is_path) {
            return Err("the path of the address has a character that HTTP does not allow".into());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or(HELP)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| HELP)?;
                (
                    host,
                    after.strip_prefix(':').or(after.is_empty().then_some("")),
                )
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(HELP.into());
        }
        let port = match port.ok_or(HELP)? {
            "" => PORT,
            port => port.parse().ok().filter(|&port| port > 0).ok_or(HELP)?,
        };
        let path = match path {
            "" | "/" => PATH,
            path => path,
        };
        Ok(Endpoint {
            host: host.into(),
            port,
            path: path.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_address_gets_the_usual_port_and_path_and_https_is_refused() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|e| e.to_string());
        for (text, expected) in [
            ("http://127.0.0.1", "http://127.0.0.1:4318/v1/metrics"),
            (
                "HTTP://gateway.local/",
                "http://gateway.local:4318/v1/metrics",
            ),
            ("http://[::1]:9/own", "http://[::1]:9/own"),
            ("http://[::1]", "http://[::1]:4318/v1/metrics"),
            ("http://h:80/a/b?c=d", "http://h:80/a/b?c=d"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected));
        }
        assert!(shown("https://h")
            .unwrap_err()
            .contains("http://127.0.0.1:4318"));
        for wrong in [
            "",
            "h:4318",
            "ftp://h",
            "http://",
            "http://:1",
            "http://h:0",
            "http://h:70000",
            "http://h:1:2",
            "http://user@h",
            "http://[::1",
            "http://[x]",
            "http://[::1]x",
            "http://h/a b",
            "http://h/\r\nX: y",
            "http://h\r\n/",
        ] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
