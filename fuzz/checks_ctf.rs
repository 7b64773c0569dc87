//! Guarantees of the importer of LTTng's traces, for any bytes. The fuzz target and the test that
//! replays its corpus share this file.
use onbeat_ctf::import;
use onbeat_trace::Reader;

/// Imports a session with one file of events. The first two bytes of `data` are the length of the
/// metadata. The metadata follow, and the rest is the file of events. Checks that the trace has as
/// many events as the importer counted, or that the reason for a failure is one line.
pub fn ctf(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (metadata, stream) = rest.split_at(length);
    let dir = tempfile::tempdir().expect("a directory");
    let session = dir.path().join("session");
    std::fs::create_dir(&session).expect("made");
    std::fs::write(session.join("metadata"), metadata).expect("written");
    std::fs::write(session.join("channel0_0"), stream).expect("written");
    let trace = dir.path().join("trace");
    match import(&session, &trace, "", &mut |_, _| {}) {
        Ok(imported) => {
            let mut reader = Reader::open(&trace).expect("the trace was just written");
            assert_eq!(reader.events().count() as u64, imported.events);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
