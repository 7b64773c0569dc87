//! A store in a bucket of an object store with an S3 interface.
//!
//! The interface itself writes a file completely or not at all. No write needs a condition, because
//! two writers of one key always write the same bytes.
//!
//! Writing a file again renews its age, so later tidying leaves it alone. Tidying that listed the
//! files just before can still remove it. The writer therefore checks that its files exist once the
//! index names them.
//!
//! Credentials from the environment are used for signatures only and appear in no message.

use super::answer::{code, fault, refused};
use super::{Backend, Entry};
use jiff::Timestamp;
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Credentials, S3Action, UrlStyle};
use std::any::Any;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

const SIGNATURE_VALIDITY: Duration = Duration::from_secs(900);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 4;
const MAX_OBJECT_BYTES: u64 = 5 << 30;
/// The largest accepted page of a bucket's list of names, in bytes: a thousand names of a kilobyte,
/// with their metadata.
const MAX_PAGE_BYTES: u64 = 16 << 20;
/// The largest accepted number of pages of a bucket's list of names. This many pages have ten
/// million names.
const MAX_PAGES: usize = 10_000;
const PAGE_NAMES: usize = 1000;
/// The time limit for a writer, from its first file to its index rows. A bucket has no locks, so
/// tidying relies on this limit.
const MAX_WRITE_TIME: Duration = Duration::from_secs(12 * 3600);

pub(crate) struct Bucket {
    place: String,
    bucket: rusty_s3::Bucket,
    credentials: Credentials,
    prefix: String,
    agent: Agent,
}

impl Bucket {
    /// Creates the client from `BUCKET/PREFIX` and the usual environment variables of S3 clients.
    ///
    /// # Errors
    ///
    /// Says why the path is not valid, or names the missing or wrong variable without its value.
    pub(crate) fn new(
        path: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let variable = |names: &[&str]| {
            let set = names.iter().filter_map(|name| variable(name));
            set.into_iter().find(|value| !value.is_empty())
        };
        let (name, prefix) = path.split_once('/').unwrap_or((path, ""));
        let prefix = prefix_of(name, prefix)?;
        let key = variable(&["AWS_ACCESS_KEY_ID"]).ok_or("AWS_ACCESS_KEY_ID is not set")?;
        let secret =
            variable(&["AWS_SECRET_ACCESS_KEY"]).ok_or("AWS_SECRET_ACCESS_KEY is not set")?;
        let credentials = match variable(&["AWS_SESSION_TOKEN"]) {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        let region = variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let region = region.unwrap_or_else(|| "us-east-1".into());
        if !plain(&region, "-") {
            return Err("AWS_REGION is not the name of a region".into());
        }
        let endpoint = variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        // A certificate of Amazon covers only one name level before its own, so a bucket name with
        // dots needs the path style.
        let style = match endpoint.is_none() && !name.contains('.') {
            true => UrlStyle::VirtualHost,
            false => UrlStyle::Path,
        };
        let url = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let url = url
            .parse()
            .map_err(|_| "AWS_ENDPOINT_URL is not a URL".to_string())?;
        let bucket = rusty_s3::Bucket::new(url, style, name.to_string(), region);
        Ok(Bucket {
            place: format!("s3://{}", path.trim_end_matches('/')),
            bucket: bucket.map_err(|_| "AWS_ENDPOINT_URL is not http://HOST or https://HOST")?,
            credentials,
            prefix,
            agent: agent(),
        })
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn send(
        &self,
        mut request: impl FnMut() -> Result<Response<Body>, ureq::Error>,
    ) -> io::Result<Response<Body>> {
        for attempt in 1..ATTEMPTS {
            match request() {
                Ok(answer) if !is_busy(&answer) => return Ok(answer),
                Ok(_) | Err(ureq::Error::Io(_) | ureq::Error::Timeout(_)) => {}
                Err(e) => return Err(fault(e)),
            }
            std::thread::sleep(Duration::from_millis(200 << attempt));
        }
        request().map_err(fault)
    }

    fn page(&self, prefix: &str, after: Option<&str>) -> io::Result<(Vec<Entry>, Option<String>)> {
        let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_prefix(prefix);
        if let Some(after) = after {
            action.with_continuation_token(after);
        }
        let mut answer = self.send(|| {
            self.agent
                .get(action.sign(SIGNATURE_VALIDITY).as_str())
                .call()
        })?;
        if answer.status().as_u16() != 200 {
            return Err(refused(&mut answer));
        }
        let now = now(&answer);
        let text = answer.body_mut().with_config().limit(MAX_PAGE_BYTES);
        let text = text.read_to_string().map_err(fault)?;
        let page = ListObjectsV2::parse_response(&text).map_err(|_| {
            io::Error::other("the server's list of objects does not have the format of S3")
        })?;
        if page.contents.len() > PAGE_NAMES {
            return Err(io::Error::other(
                "a page of the server's list of objects is too long",
            ));
        }
        let entries = page.contents.into_iter().filter_map(|object| {
            let key = object.key.strip_prefix(&self.prefix)?.to_string();
            let written = object.last_modified.and_then(|t| t.parse().ok());
            // Consoles of object stores create empty files to show folders.
            (!key.is_empty() && !key.ends_with('/')).then(|| Entry {
                key,
                bytes: object.size.unwrap_or(0),
                age: since(now, written),
            })
        });
        Ok((entries.collect(), page.next_continuation_token))
    }
}

fn is_busy(answer: &Response<Body>) -> bool {
    matches!(answer.status().as_u16(), 429 | 500 | 502 | 503 | 504)
}

fn header(answer: &Response<Body>, name: &str) -> Option<Timestamp> {
    let text = answer.headers().get(name)?.to_str().ok()?;
    let time = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(time.timestamp())
}

fn now(answer: &Response<Body>) -> Timestamp {
    header(answer, "date").unwrap_or_else(Timestamp::now)
}

fn since(now: Timestamp, written: Option<Timestamp>) -> Duration {
    let since = written.and_then(|written| now.duration_since(written).try_into().ok());
    since.unwrap_or_default()
}

fn agent() -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(IDLE_TIMEOUT))
        .timeout_per_read(Some(IDLE_TIMEOUT))
        .timeout_per_write(Some(IDLE_TIMEOUT));
    config.build().new_agent()
}

fn plain(name: &str, others: &str) -> bool {
    let may = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || others.contains(c);
    !name.is_empty() && name.chars().all(may)
}

/// Returns the prefix with a slash at its end, or an empty text for an empty prefix. Fails if a
/// name cannot be part of a URL.
fn prefix_of(bucket: &str, prefix: &str) -> Result<String, String> {
    if !plain(bucket, ".-") || !(3..=63).contains(&bucket.len()) || bucket.starts_with('.') {
        return Err(
            "the name of a bucket has 3 to 63 lower-case letters, digits, dots and hyphens".into(),
        );
    }
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        return Ok(String::new());
    }
    let odd = |part: &str| matches!(part, "" | "." | "..") || part.chars().any(char::is_control);
    match prefix.split('/').any(odd) || prefix.len() > 512 {
        true => Err(
            "a prefix consists of names separated by slashes, none of them . or .., and has at most 512 bytes".into(),
        ),
        false => Ok(format!("{prefix}/")),
    }
}

impl Backend for Bucket {
    fn place(&self) -> &str {
        &self.place
    }

    fn copy(&self, key: &str, out: &mut dyn Write) -> io::Result<Option<u64>> {
        let key = self.key(key);
        let action = self.bucket.get_object(Some(&self.credentials), &key);
        let mut answer = self.send(|| {
            self.agent
                .get(action.sign(SIGNATURE_VALIDITY).as_str())
                .call()
        })?;
        match answer.status().as_u16() {
            200 => {}
            404 if code(&mut answer) == "NoSuchKey" => return Ok(None),
            _ => return Err(refused(&mut answer)),
        }
        let bytes = answer.body().content_length();
        let copied = io::copy(&mut answer.body_mut().as_reader(), out)?;
        match bytes.is_none_or(|bytes| bytes == copied) {
            true => Ok(Some(copied)),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write(&self, key: &str, from: &mut dyn Read, bytes: u64) -> io::Result<()> {
        if bytes > MAX_OBJECT_BYTES {
            return Err(io::Error::other(
                "the file is larger than 5 GiB, the limit of an object store",
            ));
        }
        // The body must be complete, because it may have to be sent again. A model is in memory
        // anyway, and the files of a trace are small.
        let mut body = Vec::new();
        from.take(bytes).read_to_end(&mut body)?;
        if body.len() as u64 != bytes {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let key = self.key(key);
        let action = self.bucket.put_object(Some(&self.credentials), &key);
        let put = || {
            self.agent
                .put(action.sign(SIGNATURE_VALIDITY).as_str())
                .send(&body[..])
        };
        let mut answer = self.send(put)?;
        match answer.status().as_u16() {
            200 | 201 | 204 => Ok(()),
            _ => Err(refused(&mut answer)),
        }
    }

    fn list(&self, place: &str) -> io::Result<Vec<Entry>> {
        let prefix = match place {
            "" => self.prefix.clone(),
            place => self.key(&format!("{place}/")),
        };
        let (mut all, mut after) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let (entries, next) = self.page(&prefix, after.as_deref())?;
            all.extend(entries);
            if next.is_none() {
                return Ok(all);
            }
            after = next;
        }
        Err(io::Error::other(
            "the server's list of objects does not end",
        ))
    }

    fn age(&self, key: &str) -> io::Result<Option<Duration>> {
        let key = self.key(key);
        let action = self.bucket.head_object(Some(&self.credentials), &key);
        let mut answer = self.send(|| {
            self.agent
                .head(action.sign(SIGNATURE_VALIDITY).as_str())
                .call()
        })?;
        match answer.status().as_u16() {
            200 => {
                let written = header(&answer, "last-modified");
                Ok(Some(since(now(&answer), written)))
            }
            // The answer has no body, so it cannot say whether the file or the bucket is missing.
            404 => Ok(None),
            _ => Err(refused(&mut answer)),
        }
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let key = self.key(key);
        let action = self.bucket.delete_object(Some(&self.credentials), &key);
        // Sent once only: a second attempt could remove a file that another writer has written
        // again.
        let answer = self
            .agent
            .delete(action.sign(SIGNATURE_VALIDITY).as_str())
            .call();
        let mut answer = answer.map_err(fault)?;
        match answer.status().as_u16() {
            200 | 204 => Ok(()),
            404 if code(&mut answer) == "NoSuchKey" => Ok(()),
            _ => Err(refused(&mut answer)),
        }
    }

    fn make(&self) -> io::Result<()> {
        Ok(())
    }

    fn remove_leftovers(&self, _: Duration) -> io::Result<u64> {
        Ok(0)
    }

    fn max_write_time(&self) -> Option<Duration> {
        Some(MAX_WRITE_TIME)
    }

    fn lock(&self, _: bool) -> io::Result<Box<dyn Any>> {
        Ok(Box::new(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(path: &str, without: &str, endpoint: &str) -> Result<Bucket, String> {
        Bucket::new(path, &|name| match name {
            _ if name == without => None,
            "AWS_ACCESS_KEY_ID" => Some("the-key".into()),
            "AWS_SECRET_ACCESS_KEY" => Some("the-secret".into()),
            "AWS_ENDPOINT_URL" => Some(endpoint.into()),
            _ => None,
        })
    }

    #[test]
    fn s3_paths_that_cannot_be_part_of_a_url_are_refused() {
        for path in [
            "",
            "b",
            "a/../b",
            "runs/..",
            "runs//x",
            "Runs",
            "runs/a\nb",
            ".../a",
            "a@b.c",
        ] {
            assert!(made(path, "", "").is_err(), "{path}");
        }
        let bucket = made("my-runs/a/b c/", "", "").expect("a place");
        assert_eq!(
            (bucket.place(), bucket.key("lock")),
            ("s3://my-runs/a/b c", "a/b c/lock".into())
        );
        let url = bucket.bucket.object_url(&bucket.key("lock")).to_string();
        assert_eq!(
            url,
            "https://my-runs.s3.us-east-1.amazonaws.com/a/b%20c/lock"
        );
        let own = made("my-runs", "", "http://127.0.0.1:9000").expect("a place");
        assert_eq!(
            own.bucket.object_url("lock").as_str(),
            "http://127.0.0.1:9000/my-runs/lock"
        );
    }

    #[test]
    fn an_error_names_a_wrong_s3_variable_without_its_value() {
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            let said = made("runs", name, "").err().expect("refused");
            assert_eq!(said, format!("{name} is not set"));
        }
        let said = made("runs", "", "ftp://the-secret").err().expect("refused");
        assert!(
            said.contains("AWS_ENDPOINT_URL") && !said.contains("the-secret"),
            "{said}"
        );
    }
}
