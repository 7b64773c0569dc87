//! A local S3 server that checks signatures. Buckets are directories, and objects are files.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::path::PathBuf;
use std::sync::mpsc;
use tempfile::TempDir;

pub const KEY: &str = "a-user";
pub const SECRET: &str = "not-to-be-printed";

pub struct Server {
    dir: TempDir,
    pub endpoint: String,
}

impl Server {
    pub fn start() -> Server {
        let dir = TempDir::new().expect("a directory");
        let files = s3s_fs::FileSystem::new(dir.path()).expect("a directory to serve");
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let (address_sender, address) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build();
            runtime.expect("a runtime").block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
                let listener = listener.expect("a port");
                address_sender
                    .send(listener.local_addr().expect("an address"))
                    .expect("sent");
                while let Ok((socket, _)) = listener.accept().await {
                    let service = service.clone();
                    tokio::spawn(async move {
                        let http = Builder::new(TokioExecutor::new());
                        let _ = http.serve_connection(TokioIo::new(socket), service).await;
                    });
                }
            });
        });
        let endpoint = format!("http://{}", address.recv().expect("it listens"));
        Server { dir, endpoint }
    }

    pub fn bucket(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir(&path).expect("made");
        path
    }

    pub fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("AWS_ACCESS_KEY_ID", KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
        ]
    }
}
