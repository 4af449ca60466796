//! The commands of libnfs list a directory and read a file of a server in Rust.

use peregrine::foreign::ByteString;
use peregrine::{Running, Server};

use super::HOST;
use super::machine::{alone, command, run};
use super::nfs3::{
    AccessFound, AccessResult, Attributes, Dirpath, Entryplus3, ExportNode, Exports, Fattr3,
    Filename, FsinfoFound, FsinfoResult, Ftype3, GetattrResult, Handle, LookupFound, LookupResult,
    Mount3, Mount3Server, MountFound, MountResult, Nfs, NfsServer, Nfsstat3, Nfstime3, ReadFound,
    ReadResult, ReaddirplusFound, ReaddirplusResult,
};

/// The most bytes that the server returns at once. libnfs reads a larger file in several calls.
const READ_MAX: u32 = 65_536;

/// The handle of the directory.
const ROOT: u8 = 0;

/// A directory with files. The handle of a file is the file's index plus one.
#[derive(Clone)]
struct Directory {
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Directory {
    fn new() -> Self {
        let large = (0..1_000_003_u32).map(|i| (i * 7 + i / 256) as u8).collect();
        Self {
            files: vec![
                ("empty", Vec::new()),
                ("greeting.txt", b"Hello\n".to_vec()),
                ("large", large),
            ],
        }
    }

    /// Returns the attributes of a file or of the directory.
    fn attributes(&self, handle: &Handle) -> Option<Box<Fattr3>> {
        let &[id] = &*handle.0 else { return None };
        let size = match id {
            ROOT => 512,
            _ => self.files.get(usize::from(id) - 1)?.1.len() as u64,
        };
        let at = || Nfstime3 { seconds: 1_700_000_000, nseconds: 0 };
        let r#type = if id == ROOT { Ftype3::Nf3dir } else { Ftype3::Nf3reg };
        Some(Box::new(Fattr3 {
            r#type,
            mode: if id == ROOT { 0o755 } else { 0o644 },
            nlink: 1,
            uid: 1000,
            gid: 1000,
            size,
            used: size,
            rdev: [0; 2],
            fsid: 9,
            fileid: u64::from(id) + 100,
            atime: at(),
            mtime: at(),
            ctime: at(),
        }))
    }

    fn root(&self) -> Attributes {
        self.attributes(&handle(ROOT))
    }
}

fn handle(id: u8) -> Handle {
    Handle(vec![id])
}

const NOT_FOUND: i32 = Nfsstat3::Nfs3errNoent as i32;

impl Nfs for Directory {
    fn getattr(&self, handle: Handle) -> peregrine::Result<GetattrResult> {
        let found = self.attributes(&handle);
        Ok(found.map_or(GetattrResult::Default(NOT_FOUND), |found| GetattrResult::Nfs3Ok(*found)))
    }

    fn lookup(&self, _directory: Handle, name: Filename) -> peregrine::Result<LookupResult> {
        let found = self.files.iter().position(|(one, _)| one.as_bytes() == name.0);
        let Some(index) = found else { return Ok(LookupResult::Default(NOT_FOUND, self.root())) };
        let object = handle(index as u8 + 1);
        let of_object = self.attributes(&object);
        Ok(LookupResult::Nfs3Ok(LookupFound { object, of_object, of_directory: self.root() }))
    }

    fn access(&self, handle: Handle, access: u32) -> peregrine::Result<AccessResult> {
        Ok(AccessResult::Nfs3Ok(AccessFound { of_object: self.attributes(&handle), access }))
    }

    fn read(&self, handle: Handle, offset: u64, count: u32) -> peregrine::Result<ReadResult> {
        let index = handle.0.first().and_then(|id| usize::from(*id).checked_sub(1));
        let Some((_, bytes)) = index.and_then(|index| self.files.get(index)) else {
            return Ok(ReadResult::Default(NOT_FOUND, None));
        };
        let begin = bytes.len().min(usize::try_from(offset).expect("an offset"));
        let data: Vec<u8> =
            bytes[begin..].iter().copied().take(count.min(READ_MAX) as usize).collect();
        let eof = begin + data.len() == bytes.len();
        let (of_file, count) = (self.attributes(&handle), data.len() as u32);
        Ok(ReadResult::Nfs3Ok(ReadFound { of_file, count, eof, data }))
    }

    /// Returns all entries after the entry with this cookie. The first entry has the cookie 1.
    fn readdirplus(
        &self,
        _handle: Handle,
        cookie: u64,
        _verifier: i64,
        _dircount: u32,
        _maxcount: u32,
    ) -> peregrine::Result<ReaddirplusResult> {
        let later = self.files.iter().enumerate().skip(usize::try_from(cookie).expect("a cookie"));
        let entries = later.rev().fold(None, |next, (index, (name, _))| {
            let object = handle(index as u8 + 1);
            let (id, name) = (u64::from(object.0[0]), ByteString::from(*name));
            let (of_object, object) = (self.attributes(&object), Some(object));
            Some(Box::new(Entryplus3 {
                fileid: id + 100,
                name,
                cookie: id,
                of_object,
                object,
                next,
            }))
        });
        let (of_directory, verifier) = (self.root(), [0; 8]);
        Ok(ReaddirplusResult::Nfs3Ok(ReaddirplusFound {
            of_directory,
            verifier,
            entries,
            eof: true,
        }))
    }

    fn fsinfo(&self, handle: Handle) -> peregrine::Result<FsinfoResult> {
        Ok(FsinfoResult::Nfs3Ok(FsinfoFound {
            of_object: self.attributes(&handle),
            rtmax: READ_MAX,
            rtpref: READ_MAX,
            rtmult: 1,
            wtmax: READ_MAX,
            wtpref: READ_MAX,
            wtmult: 1,
            dtpref: READ_MAX,
            maxfilesize: u64::MAX,
            time_delta: Nfstime3 { seconds: 1, nseconds: 0 },
            properties: 0,
        }))
    }
}

impl Mount3 for Directory {
    fn mnt(&self, path: Dirpath) -> peregrine::Result<MountResult> {
        if path.0.to_text() != "/export" {
            return Ok(MountResult::Default(Nfsstat3::Nfs3errAcces as i32));
        }
        // 1 is the number of AUTH_SYS.
        Ok(MountResult::Nfs3Ok(MountFound { root: handle(ROOT), flavors: vec![1] }))
    }

    fn umnt(&self, _path: Dirpath) -> peregrine::Result<()> {
        Ok(())
    }

    fn export(&self) -> peregrine::Result<Exports> {
        let directory = Dirpath(ByteString::from("/export"));
        Ok(Some(Box::new(ExportNode { directory, groups: None, next: None })))
    }
}

/// Serves both programs at one port.
fn served(directory: &Directory) -> Running {
    let server = Server::new().export("nfs", NfsServer::new(directory.clone())).expect("an export");
    let server = server.export("mount", Mount3Server::new(directory.clone())).expect("an export");
    let server = server.listen(&format!("onc+tcp:{HOST}:0")).expect("a port");
    server.spawn().expect("a server")
}

#[test]
fn libnfs_lists_and_reads_files_of_our_server() {
    let needs = ["nfs-ls", "nfs-cat"];
    alone("nfs::libnfs_lists_and_reads_files_of_our_server", &needs, || {
        let directory = Directory::new();
        let running = served(&directory);
        let port = running.addresses()[0].place().port();
        let url = |path: &str| format!("nfs://{HOST}/export{path}?nfsport={port}&mountport={port}");
        let listed = run("nfs-ls", &[&url("")]);
        for (name, bytes) in &directory.files {
            let size = bytes.len().to_string();
            let is_there = |line: &str| {
                let words: Vec<_> = line.split_whitespace().collect();
                words.last() == Some(name) && words.contains(&&*size)
            };
            assert!(listed.lines().any(is_there), "{name}: {listed}");
            let output = command("nfs-cat", &[&url(&format!("/{name}"))]).output().expect("output");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.stdout == *bytes, "{name} has {} bytes", output.stdout.len());
        }
        let missing = command("nfs-cat", &[&url("/no-such-file")]).output().expect("output");
        assert!(!missing.status.success());
    });
}
