//! Archives in single files: made, opened by the ordinary programs, read back, and attacked.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nono_engine::object::ContentHash;
use serde_json::Value;

use crate::fixture::{Finished, Fixture};
use crate::observe::{assert_same, observe};
use crate::scene::Tree;

/// Where a block of a tar file has its name, length and checksum.
pub const BLOCK_BYTES: usize = 512;

/// A session, a key, and a place for archives.
pub struct Desk {
    pub fixture: Fixture,
    pub session: String,
    key: String,
    recipient: String,
}

impl Desk {
    pub fn new() -> Self {
        let fixture = Fixture::new();
        fill(&fixture);
        fixture.nono(&["snapshot"]).success();
        let key = fixture.path("key.txt");
        assert!(shell("age-keygen -o \"$1\"", &[&key]).0);
        let text = fs::read_to_string(&key).unwrap();
        let recipient = text.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
        let (session, recipient) = (fixture.latest(), recipient.to_owned());
        Self { fixture, session, key: key.to_str().unwrap().to_owned(), recipient }
    }

    pub fn at(&self, name: &str) -> String {
        self.fixture.path(name).to_str().unwrap().to_owned()
    }

    pub fn create(&self, number: u64, name: &str, options: &[&str]) -> Value {
        let (id, out) = (format!("{}/{number}", self.session), self.at(name));
        let create = ["archive", "create", &id, "-o", &out, "--json"];
        self.fixture.nono(&[&create, options].concat()).success().json()
    }

    pub fn import(&self, store: &str, files: &[&str]) -> Finished {
        let files: Vec<_> = files.iter().map(|file| self.at(file)).collect();
        let files = files.iter().map(String::as_str).collect();
        let root = self.at(store);
        let import = vec!["--root", &root, "archive", "import", "-i", &self.key, "--json"];
        self.fixture.nono(&[import, files].concat())
    }

    fn root_of(&self, store: &Path, number: usize) -> Value {
        let show = ["--root", store.to_str().unwrap(), "rollback", "show", &self.session, "--json"];
        let shown = self.fixture.nono(&show).success().json();
        let snapshots = shown["snapshots"].as_array().unwrap();
        let number = Value::from(number);
        snapshots.iter().find(|one| one["number"] == number).unwrap()["merkle_root"].clone()
    }

    /// The snapshot in a store of its own is the one here, and its files are these.
    fn arrived(&self, store: &str, number: usize, files: &Tree) {
        let (root, path) = (self.at(store), self.fixture.path(store));
        assert_eq!(self.root_of(&path, number), self.root_of(&self.fixture.store(), number));
        self.fixture.nono(&["--root", &root, "rollback", "verify", &self.session]).success();
        let (id, to) = (format!("{}/{number}", self.session), self.at(&format!("{store}-copy")));
        let restore = ["rollback", "restore", &id, "--to", &to, "--with-privileges"];
        self.fixture.nono(&[&["--root", &root][..], &restore].concat()).success();
        assert_same(files, &below(Path::new(&to)));
    }

    /// The archive is refused everywhere with exit 1 and these words, and leaves nothing.
    #[track_caller]
    fn refused(&self, name: &str, words: &[&str]) {
        let outside = || {
            let mut tree = observe(&self.fixture.path(""));
            tree.retain(|path, _| !path.starts_with("refusing") && path != Path::new(""));
            tree
        };
        let (before, file) = (outside(), self.at(name));
        let verify = ["archive", "verify", &file, "-i", &self.key];
        for done in [self.fixture.nono(&verify), self.import("refusing", &[name])] {
            assert_eq!(done.code, 1, "{name}: {}{}", done.stdout, done.stderr);
            assert!(!done.stderr.contains("panicked"), "{name}: {}", done.stderr);
            assert!(words.iter().any(|it| done.stderr.contains(it)), "{name}: {}", done.stderr);
            assert_eq!(done.stdout, "", "{name}");
        }
        self.is_empty("refusing");
        assert_same(&before, &outside());
    }

    #[track_caller]
    fn is_empty(&self, store: &str) {
        let listed = fs::read_dir(self.fixture.path(store)).into_iter().flatten();
        let names: Vec<_> =
            listed.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.starts_with("20")), "{names:?}");
    }
}

/// A tree with every kind of entry.
fn fill(fixture: &Fixture) {
    let project = fixture.project();
    let first = fixture.write("first", "1\n");
    fixture.write("deep/er/file", vec![b'd'; 70_000]);
    fixture.write(&format!("long/{0}/{0}", "n".repeat(200)), "long name");
    fs::write(project.join(OsStr::from_bytes(b"not-\xff-utf8")), "bytes").unwrap();
    fs::create_dir(project.join("empty")).unwrap();
    symlink("deep/er", project.join("link")).unwrap();
    symlink("t".repeat(150), project.join("long-link")).unwrap();
    fs::hard_link(&first, project.join("deep/linked")).unwrap();
    fs::set_permissions(&first, PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(project.join("empty"), PermissionsExt::from_mode(0o1770)).unwrap();
    let dress = "mkfifo fifo && setfattr -n user.note -v 'a=b%' first && \
                 setfattr -n user.dir -v x deep && \
                 touch -hd '2001-02-03 04:05:06.123456789' first link deep/er/file && \
                 touch -d '1969-12-31 23:59:58.5 UTC' empty";
    assert!(shell(&format!("cd \"$1\" && {dress}"), &[&project]).0);
    for at in 0..20 {
        fixture.write(&format!("many/{at}"), format!("{at}\n"));
    }
}

/// The tree below a directory, without the directory itself.
fn below(root: &Path) -> Tree {
    let mut tree = observe(root);
    tree.remove(Path::new(""));
    tree
}

/// Runs a script of the ordinary programs.
fn shell(script: &str, arguments: &[&Path]) -> (bool, Vec<u8>) {
    let script = format!("set -o pipefail; {script}");
    let done = Command::new("bash").args(["-c", &script, "sh"]).args(arguments).output().unwrap();
    (done.status.success(), done.stdout)
}

fn unpack(desk: &Desk, archive: &str, to: &str) -> PathBuf {
    let (key, archive, to) = (&desk.key, desk.fixture.path(archive), desk.fixture.path(to));
    fs::create_dir(&to).unwrap();
    let script = "age -d -i \"$1\" \"$2\" | zstd -dq | tar -xp --xattrs -C \"$3\"";
    assert!(shell(script, &[Path::new(key), &archive, &to]).0);
    to
}

/// The bytes of the tar file in an archive that is not encrypted, without its end.
pub fn tar_of(archive: &Path) -> Vec<u8> {
    let (done, mut tar) = shell("zstd -dcq \"$1\"", &[archive]);
    assert!(done && tar.ends_with(&[0; 2 * BLOCK_BYTES]));
    tar.truncate(tar.len() - 2 * BLOCK_BYTES);
    tar
}

/// A member of a tar file, whatever its name and declared length.
pub fn member(path: &str, kind: u8, declared: u64, contents: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    block[..path.len()].copy_from_slice(path.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..124].copy_from_slice(b"0000000\x000000000\0");
    block[124..136].copy_from_slice(format!("{declared:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend(contents);
    block.resize(block.len().next_multiple_of(BLOCK_BYTES), 0);
    block
}

/// A symlink as a member of a tar file.
pub fn link(path: &str, target: &str) -> Vec<u8> {
    let mut block = member(path, b'2', 0, b"");
    block[157..157 + target.len()].copy_from_slice(target.as_bytes());
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Compresses a tar file, with the end that it needs.
pub fn pack(tar: &[u8], options: &str, to: &Path) {
    let plain = to.with_extension("plain");
    fs::write(&plain, [tar, &[0; 2 * BLOCK_BYTES]].concat()).unwrap();
    assert!(shell(&format!("zstd -q {options} \"$1\" -o \"$2\""), &[&plain, to]).0);
    fs::remove_file(plain).unwrap();
}

#[test]
fn the_owner_of_an_ssh_key_reads_what_is_sealed_for_it() {
    let desk = Desk::new();
    let key = desk.fixture.path("id_ed25519");
    assert!(shell("ssh-keygen -q -t ed25519 -N '' -f \"$1\"", &[&key]).0);
    let recipient = fs::read_to_string(key.with_extension("pub")).unwrap();
    desk.create(0, "a.age", &["--recipient", recipient.trim()]);
    let archive = desk.fixture.path("a.age");
    assert!(shell("age -d -i \"$1\" \"$2\" | zstd -d | tar -t > /dev/null", &[&key, &archive]).0);
    let verify =
        |key: &str| desk.fixture.nono(&["archive", "verify", "-i", key, archive.to_str().unwrap()]);
    verify(key.to_str().unwrap()).success();
    verify(&desk.key).fails(1, "a.age");
}

#[test]
fn the_ordinary_programs_give_the_files_back_and_so_does_an_import() {
    let desk = Desk::new();
    let made = desk.create(0, "a.age", &["--recipient", &desk.recipient]);
    assert_eq!(made["is_encrypted"], true);
    let original = below(&desk.fixture.project());
    assert!(original.values().any(|it| it.kind == "fifo"));
    let out = unpack(&desk, "a.age", "out");
    let project = desk.fixture.project();
    let files = out.join("files").join(project.strip_prefix("/").unwrap());
    assert_same(&original, &below(&files));
    let report = desk.import("empty", &["a.age"]).success().json();
    assert_eq!(report["sessions"][0]["session_id"], *desk.session);
    assert_eq!(report["sessions"][0]["snapshots"], serde_json::json!([0]));
    desk.arrived("empty", 0, &original);
    let again = desk.import("empty", &["a.age"]).success().json();
    assert_eq!(again["sessions"][0]["already_here"], serde_json::json!([0]));
}

#[test]
fn a_delta_says_what_changed_and_needs_its_base() {
    let desk = Desk::new();
    let sealed = ["--recipient", &*desk.recipient];
    desk.create(0, "base.age", &sealed);
    desk.fixture.write("many/3", "changed");
    desk.fixture.write("many/new", "new");
    fs::remove_file(desk.fixture.project().join("many/7")).unwrap();
    desk.fixture.nono(&["snapshot", "--session", &desk.session]).success();
    let base = desk.at("base.age");
    let parent = ["--parent", &base, "-i", &desk.key];
    desk.create(1, "delta.age", &[&sealed[..], &parent[..]].concat());
    let out = unpack(&desk, "delta.age", "out");
    let delta = fs::read(out.join("meta/delta-manifest.json")).unwrap();
    let delta: Value = serde_json::from_slice(&delta).unwrap();
    assert_eq!(delta["parentId"], format!("{}/0", desk.session));
    assert_eq!(delta["baseId"], format!("{}/0", desk.session));
    assert_eq!(delta["chainDepth"], 1);
    // 20 files, four more, and the second name of one of them.
    let stats = &delta["stats"];
    let counts = ["added", "modified", "removed", "unchanged", "totalFiles"].map(|it| &stats[it]);
    assert_eq!(counts, [1, 1, 1, 23, 25]);
    assert!(stats["bytesSaved"].as_u64().unwrap() > 70_000);
    let hashes = &delta["resultHashes"];
    assert_eq!(hashes["count"], 25);
    let files = hashes["files"].as_object().unwrap();
    let mut lines: Vec<_> =
        files.iter().map(|(path, hash)| format!("{path}:{}", hash.as_str().unwrap())).collect();
    lines.sort();
    assert_eq!(lines.len(), 25);
    let root_hash = ContentHash::of(lines.join("\n").as_bytes());
    assert_eq!(hashes["rootHash"], format!("sha256:{root_hash}"));
    let many = desk.fixture.project().join("many");
    let path = |name: &str| many.join(name).strip_prefix("/").unwrap().to_str().unwrap().to_owned();
    let hash = |text: &str| format!("sha256:{}", ContentHash::of(text.as_bytes()));
    let wanted = serde_json::json!([
        { "path": path("3"), "type": "modified", "hash": hash("changed"), "size": 7 },
        { "path": path("7"), "type": "removed" },
        { "path": path("new"), "type": "added", "hash": hash("new"), "size": 3 },
    ]);
    assert_eq!(delta["entries"], wanted);
    assert_eq!(files[&path("new")], hash("new"));
    let shown = desk.fixture.nono(&["archive", "show", &desk.at("delta.age"), "-i", &desk.key]);
    assert!(shown.success().says(&format!("delta to {}/0", desk.session)));
    // A full one when it is asked for.
    let full = desk.create(1, "full.age", &[&sealed[..], &["--full"]].concat());
    assert_eq!(full["stats"]["added"], 25);
    let alone = desk.import("alone", &["delta.age"]);
    alone.fails(1, &format!("the archive of {}/0 is needed", desk.session));
    desk.is_empty("alone");
    desk.import("both", &["base.age", "delta.age"]).success();
    desk.arrived("both", 1, &below(&desk.fixture.project()));
    desk.import("later", &["base.age"]).success();
    desk.import("later", &["delta.age"]).success();
    desk.arrived("later", 1, &below(&desk.fixture.project()));
}

#[test]
fn a_passphrase_opens_what_it_sealed_and_no_other_does() {
    let desk = Desk::new();
    let (right, wrong) = (desk.at("right"), desk.at("wrong"));
    fs::write(&right, "correct horse\n").unwrap();
    fs::write(&wrong, "wrong horse\n").unwrap();
    desk.create(0, "a.age", &["--passphrase-file", &right]);
    let file = desk.at("a.age");
    let verify = ["archive", "verify", &file];
    let with = |options: &[&str]| desk.fixture.nono(&[&verify, options].concat());
    assert!(with(&["--passphrase-file", &right]).success().says("intact"));
    with(&["--passphrase-file", &wrong]).fails(1, "none of the given");
    with(&[]).fails(1, "the archive is encrypted");
    let root = desk.at("store");
    let import = ["--root", &root, "archive", "import", &file, "--passphrase-file"];
    desk.fixture.nono(&[&import[..], &[&wrong]].concat()).fails(1, "none of the given");
    desk.is_empty("store");
    desk.fixture.nono(&[&import[..], &[&right]].concat()).success();
    desk.arrived("store", 0, &below(&desk.fixture.project()));
}

#[test]
fn show_and_verify_say_what_an_archive_holds() {
    let desk = Desk::new();
    desk.create(0, "a.age", &["--recipient", &desk.recipient]);
    let file = desk.at("a.age");
    let of = |what| desk.fixture.nono(&["archive", what, &file, "-i", &desk.key, "--json"]);
    let (shown, verified) = (of("show").success().json(), of("verify").success().json());
    for said in [&shown, &verified] {
        assert_eq!(said["id"], format!("{}/0", desk.session));
        assert_eq!(said["parent"], Value::Null);
        assert_eq!(said["chain_depth"], 0);
        assert_eq!(said["is_encrypted"], true);
        assert_eq!(said["merkle_root"], desk.root_of(&desk.fixture.store(), 0));
        assert_eq!(said["stats"]["total_files"], 25);
    }
    // The second name of a file has no contents of its own.
    assert_eq!(verified["file_count"], 24);
}

#[test]
fn what_another_compressor_made_of_the_same_bytes_is_read() {
    let desk = Desk::new();
    desk.create(0, "own", &["--full"]);
    // `pzstd` begins with a frame that says how long the next one is, and that is skipped.
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    let own = fs::read(desk.at("own")).unwrap();
    fs::write(desk.at("other"), [&skipped[..], &own].concat()).unwrap();
    desk.fixture.nono(&["archive", "verify", &desk.at("other")]).success();
    // A key opens a parent, and there is none.
    let id = desk.session.as_str();
    let create = ["archive", "create", id, "-o", &desk.at("new"), "-i", &desk.key];
    desk.fixture.nono(&create).fails(2, "--parent");
    assert!(!Path::new(&desk.at("new")).exists());
}

#[test]
fn attributes_and_names_of_any_bytes_arrive() {
    let desk = Desk::new();
    let project = desk.fixture.project();
    let file = desk.fixture.write("with", "x");
    let set = ["setfattr -n user.v -v 0x0a000a3d0a \"$1\"", "setfattr -n user.n=m -v a \"$1\""];
    assert!(set.iter().all(|script| shell(script, &[&file]).0));
    let long = format!("{}\n8 path=x\n", "n".repeat(120));
    desk.fixture.write(&long, "y");
    symlink(&long, project.join("of long")).unwrap();
    fs::hard_link(project.join(&long), project.join("second of long")).unwrap();
    desk.fixture.nono(&["snapshot", "--session", &desk.session]).success();
    let original = below(&project);
    desk.create(0, "full", &["--full"]);
    desk.create(1, "delta", &["--parent", &desk.at("full")]);
    desk.create(1, "whole", &["--full", "--recipient", &desk.recipient]);
    for (store, files) in [("one", &["full", "delta"][..]), ("two", &["whole"])] {
        for file in files {
            desk.fixture.nono(&["archive", "verify", &desk.at(file), "-i", &desk.key]).success();
        }
        desk.import(store, files).success();
        desk.arrived(store, 1, &original);
    }
    let files = unpack(&desk, "whole", "out").join("files");
    assert_same(&original, &below(&files.join(project.strip_prefix("/").unwrap())));
}

#[test]
fn a_wrong_key_a_flipped_bit_and_a_missing_end_are_refused() {
    let desk = Desk::new();
    desk.create(0, "sealed.age", &["--recipient", &desk.recipient]);
    desk.create(0, "plain", &[]);
    let other = desk.fixture.path("other.txt");
    assert!(shell("age-keygen -o \"$1\"", &[&other]).0);
    let file = desk.at("sealed.age");
    let verify = ["archive", "verify", &file, "-i", other.to_str().unwrap()];
    desk.fixture.nono(&verify).fails(1, "none of the given");
    let said = ["damaged", "none of the given", "refused", "cannot read the archive", "manifest"];
    for name in ["sealed.age", "plain"] {
        let whole = fs::read(desk.fixture.path(name)).unwrap();
        for at in [0, 30, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(desk.fixture.path("hurt"), bytes).unwrap();
            desk.refused("hurt", &said);
        }
        for len in [0, 10, 100, whole.len() / 2, whole.len() - 1] {
            fs::write(desk.fixture.path("hurt"), &whole[..len]).unwrap();
            desk.refused("hurt", &said);
        }
        fs::write(desk.fixture.path("hurt"), [&whole[..], b"more"].concat()).unwrap();
        desk.refused("hurt", &said);
    }
}

#[test]
fn what_is_not_an_archive_of_nono_is_refused_and_writes_nothing() {
    let desk = Desk::new();
    desk.create(0, "good", &[]);
    let tar = tar_of(&desk.fixture.path("good"));
    let bad = desk.fixture.path("bad");
    // `verify` knows, too, what a tree has.
    let attempt = |tar: &[u8], words: &str| {
        pack(tar, "", &bad);
        desk.refused("bad", &[words, "is no path of its trees"]);
        fs::remove_file(&bad).unwrap();
    };
    fs::write(&bad, "no archive").unwrap();
    desk.refused("bad", &["neither encrypted"]);
    fs::remove_file(&bad).unwrap();
    attempt(&member("hello", b'0', 5, b"hello"), "is not where it has to be");
    for path in ["../x", "files/../../x", "/x", "files//x", "files/./x", "meta/objects/../../x"] {
        attempt(&[&tar[..], &member(path, b'0', 1, b"x")].concat(), "is no path of an archive");
    }
    let unannounced = member("files/zz-unannounced", b'0', 1, b"x");
    attempt(&[&tar[..], &unannounced].concat(), "is not announced");
    let dir = member("files/zz-twice", b'5', 0, b"");
    attempt(&[&tar[..], &dir, &dir].concat(), "is there twice");
    let link = link("files/zz", "/etc");
    let inside = member("files/zz/passwd", b'0', 1, b"x");
    attempt(&[&tar[..], &link, &inside].concat(), "is not announced");
    // The last member, which is a file, once more.
    let last = &tar[tar.len() - 2 * BLOCK_BYTES..];
    attempt(&[&tar[..], last].concat(), "is there twice");
    attempt(&[&tar[..], &member("other/x", b'0', 1, b"x")].concat(), "is no part of an archive");
    attempt(&[&tar[..], &member("files/x", b'L', 1, b"x")].concat(), "of a kind");
    // Without its last member, which is a file.
    attempt(&tar[..tar.len() - 2 * BLOCK_BYTES], "");
    // Behind the contents of its last member, where zeros fill a block.
    let mut filled = tar.clone();
    *filled.last_mut().unwrap() ^= 1;
    attempt(&filled, "belong to no member");
    // The untouched archive, packed again, is a good one.
    pack(&tar, "", &bad);
    desk.import("good-store", &["bad"]).success();
    desk.arrived("good-store", 0, &below(&desk.fixture.project()));
}

#[test]
fn the_longest_declared_length_is_damage() {
    let desk = Desk::new();
    desk.create(0, "good", &[]);
    let tar = tar_of(&desk.fixture.path("good"));
    let at = tar.windows(6).position(|window| window == b"files/").unwrap() / BLOCK_BYTES;
    let (head, rest) = tar.split_at(at * BLOCK_BYTES);
    let record = b"29 size=18446744073709551615\n";
    assert_eq!(record.len(), 29);
    let pax = member("pax", b'x', record.len() as u64, record);
    let object = member(&format!("meta/objects/{}", "a".repeat(64)), b'0', 0, b"");
    pack(&[head, &pax, &object, rest].concat(), "", &desk.fixture.path("bad"));
    desk.refused("bad", &["damaged", "cut off"]);
}

#[test]
fn a_zip_bomb_is_refused() {
    let desk = Desk::new();
    desk.create(0, "good", &[]);
    let tar = tar_of(&desk.fixture.path("good"));
    let bomb = desk.fixture.path("bomb");
    let attempt = |tar: &[u8], options: &str, words: &str| {
        pack(tar, options, &bomb);
        desk.refused("bomb", &[words]);
        fs::remove_file(&bomb).unwrap();
    };
    let zeros = vec![0; 80 << 20];
    let size = zeros.len() as u64;
    attempt(&member("meta/session.json", b'0', size, &zeros), "", "has 83886080 bytes");
    attempt(&member("meta/session.json", b'x', size, &zeros), "", "attributes of a file");
    // Each of these takes many times its length in memory.
    let values =
        format!("{{\"format_version\":1,\"network_events\":[{}[]]}}", "[],".repeat(1 << 18));
    let values = member("meta/session.json", b'0', values.len() as u64, values.as_bytes());
    attempt(&values, "", "values, and 262144 is the most");
    attempt(&[&tar[..], &zeros].concat(), "", "bytes behind its end");
    let object = format!("meta/objects/{}", ContentHash::of(&zeros));
    let object = member(&object, b'0', size, &zeros);
    attempt(&[&tar[..], &object].concat(), "", "is out of order");
    let is_object = |block: &[u8]| block.starts_with(b"meta/objects/");
    let first = tar.chunks(BLOCK_BYTES).position(is_object).unwrap() * BLOCK_BYTES;
    let with_object = [&tar[..first], &object, &tar[first..]].concat();
    // A window that would take 128 MiB of memory.
    attempt(&with_object, "--long=27", "too much memory");
    attempt(&with_object, "", "nothing in it names");
}

#[test]
fn an_archive_comes_through_a_symlink_and_a_pipe_but_an_import_needs_a_file() {
    let desk = Desk::new();
    desk.create(0, "good", &[]);
    let good = desk.fixture.path("good");
    symlink("good", desk.fixture.path("link")).unwrap();
    desk.fixture.nono(&["archive", "verify", &desk.at("link")]).success();
    desk.import("linked", &["link"]).success();
    let piped = |command: &str| {
        let script = format!("\"$0\" archive {command} <(cat \"$1\")");
        let nono = desk.fixture.command(&[]);
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).arg(nono.get_program()).arg(&good);
        bash.env("HOME", desk.fixture.path("home"));
        crate::fixture::finished(bash.output().unwrap())
    };
    assert!(piped("verify").success().says("intact"));
    piped("import").fails(2, "read more than once");
    desk.fixture.nono(&["archive", "verify", &desk.at("")]).fails(1, "Is a directory");
    desk.fixture.nono(&["archive", "show", &desk.at("none")]).fails(1, "No such file");
}

/// A run with two snapshots, and an archive of each that is not encrypted.
fn run_in_archives() -> Desk {
    let mut desk = Desk::new();
    let run = ["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", "echo new >new"];
    desk.fixture.nono(&run).success();
    desk.session = desk.fixture.latest();
    for (number, name) in [(0, "0.tar.zst"), (1, "1.tar.zst")] {
        desk.create(number, name, &["--full"]);
    }
    desk
}

/// An archive with other bytes in its first text of this kind, as many as before.
fn forged(desk: &Desk, name: &str, from: &str, to: &str, forged: &str) {
    assert_eq!(from.len(), to.len());
    let mut tar = tar_of(&desk.fixture.path(name));
    let at = tar.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    tar[at..at + to.len()].copy_from_slice(to.as_bytes());
    pack(&tar, "", &desk.fixture.path(forged));
}

#[test]
fn a_received_session_is_meant_by_its_id_alone() {
    let desk = run_in_archives();
    let report = desk.import("there", &["0.tar.zst", "1.tar.zst"]).success().json();
    assert_eq!(report["sessions"][0]["is_new_session"], true, "{report}");
    let root = desk.at("there");
    let there = |words: &[&str]| desk.fixture.nono(&[&["--root", &root], words].concat());
    for words in [&["undo", "--yes"][..], &["rollback", "restore", "latest"], &["redo"]] {
        let refused = there(words);
        assert_eq!(refused.code, 1, "{words:?}: {}", refused.stderr);
        assert!(refused.says("came in an archive"), "{words:?}: {}", refused.stderr);
    }
    assert!(desk.fixture.path("project/new").exists());
    let list = there(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["received"], true);
    assert!(there(&["rollback", "show", &desk.session]).success().stdout.contains("received"));
    let log = there(&["log", "--json", "new"]).success().json();
    assert_eq!(log["versions"][0]["origin"], "received", "{log:#}");
    let log = there(&["log", "new"]).success();
    assert!(log.says("echo new") && log.says("received in an archive"), "{}", log.stdout);
    let found = there(&["rollback", "find", "new"]).success();
    assert!(found.says("received in an archive"), "{}", found.stdout);
    there(&["rollback", "restore", &desk.session]).success();
    assert!(!desk.fixture.path("project/new").exists());
    // The sessions recorded here are as before.
    let list = desk.fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["received"], false);
}

#[test]
fn a_session_that_tracks_other_paths_than_its_snapshots_is_refused() {
    let desk = run_in_archives();
    // The session stands before the manifests of its snapshots.
    forged(&desk, "0.tar.zst", "/project\"", "/harmles\"", "forged.tar.zst");
    let refused = desk.import("there", &["forged.tar.zst"]);
    refused.fails(1, "which the session does not");
    desk.is_empty("there");
}

#[test]
fn a_snapshot_that_tracks_another_path_is_never_added_to_a_session_that_is_here() {
    let mut desk = Desk::new();
    let fixture = &desk.fixture;
    let path = |name: &str| fixture.project().join(name).to_str().unwrap().to_owned();
    let (own, other) = (path("aa"), path("bb"));
    fixture.write("aa/file", "1");
    fixture.write("bb/file", "1");
    fixture.nono(&["snapshot", &own, &other]).success();
    let session = fixture.latest();
    fixture.write("bb/file", "2");
    fixture.nono(&["snapshot", "--session", &session]).success();
    desk.session = session;
    desk.create(0, "0.tar.zst", &["--full"]);
    desk.create(1, "1.tar.zst", &["--full"]);
    desk.import("there", &["0.tar.zst"]).success();
    // The session here tracks the first one alone, and so says the session in the archive.
    let both = format!("{own:?},\n    {other:?}");
    let one = format!("{own:?}{}", " ".repeat(both.len() - own.len() - 2));
    let of_one = |text: &str| {
        let text = text.replace(&both, &one);
        let end = text.find("  \"checksum\"").unwrap();
        let checksum = ContentHash::of(&text.as_bytes()[..end]);
        format!("{}  \"checksum\": \"{checksum}\"\n}}\n", &text[..end])
    };
    let session = desk.fixture.path("there").join(&desk.session);
    let manifest = session.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains(&both), "{text}");
    fs::write(&manifest, of_one(&text)).unwrap();
    let own = desk.fixture.store().join(&desk.session).join("manifest.json");
    let own = fs::read_to_string(own).unwrap();
    forged(&desk, "1.tar.zst", &own, &of_one(&own), "forged.tar.zst");
    // Only the file that is locked may be new.
    let held = || (observe(&session.join("snapshots")), fs::read(&manifest).unwrap());
    let before = held();
    desk.import("there", &["forged.tar.zst"]).fails(1, "tracks");
    assert_same(&before.0, &held().0);
    assert!(before.1 == held().1, "the session's manifest is another one");
    // Where both are tracked, it comes.
    fs::write(&manifest, text).unwrap();
    desk.import("there", &["1.tar.zst"]).success();
}

#[test]
fn an_archive_changes_no_fact_of_a_session_that_is_here() {
    let desk = run_in_archives();
    desk.import("there", &["0.tar.zst"]).success();
    let (root, session) = (desk.at("there"), desk.session.clone());
    let show = ["--root", &root, "rollback", "show", &session, "--json"];
    let before = desk.fixture.nono(&show).success().json();
    for (from, to) in
        [("\"exit_code\": 0", "\"exit_code\": 7"), ("\"ended\": \"20", "\"ended\": \"19")]
    {
        forged(&desk, "1.tar.zst", from, to, "forged.tar.zst");
        desk.import("there", &["forged.tar.zst"]).fails(1, "its end is another one");
        assert_eq!(desk.fixture.nono(&show).success().json(), before);
        fs::remove_file(desk.fixture.path("forged.tar.zst")).unwrap();
    }
    desk.import("there", &["1.tar.zst"]).success();
    let after = desk.fixture.nono(&show).success().json();
    assert_eq!(after["snapshots"].as_array().unwrap().len(), 2);
    assert_eq!(after["changes"]["created"], 1);
}

#[test]
fn a_session_whose_command_runs_here_gets_no_snapshot_from_an_archive() {
    let desk = run_in_archives();
    let (root, session) = (desk.fixture.path("there"), desk.session.clone());
    desk.import("there", &["0.tar.zst"]).success();
    // As the supervisor of a run holds it.
    let running = nono_engine::snapshot::SessionDir::open(&root.join(&session)).unwrap();
    let lock = running.lock_running().unwrap();
    desk.import("there", &["1.tar.zst"]).fails(1, "its command is still running here");
    assert_eq!(running.snapshot_numbers().unwrap(), [0]);
    drop(lock);
    desk.import("there", &["1.tar.zst"]).success();
    assert_eq!(running.snapshot_numbers().unwrap(), [0, 1]);
}

/// The mode of a file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_received_session_gives_no_file_privileges_unless_somebody_asks() {
    let desk = Desk::new();
    desk.create(0, "0.tar.zst", &[]);
    desk.import("there", &["0.tar.zst"]).success();
    let root = desk.at("there");
    let restore = |words: &[&str]| {
        let restore = ["--root", &root, "rollback", "restore", &desk.session];
        desk.fixture.nono(&[&restore, words].concat())
    };
    let (less, all) = (desk.fixture.path("less"), desk.fixture.path("all"));
    let told = restore(&["--to", less.to_str().unwrap()]).fails(1, "--with-privileges");
    assert!(told.stdout.contains("first: setuid, setgid"), "{}", told.stdout);
    assert_eq!((mode(&less.join("first")), mode(&less.join("deep/linked"))), (0o751, 0o751));
    restore(&["--to", all.to_str().unwrap(), "--with-privileges"]).success();
    assert_eq!(mode(&all.join("first")), 0o4751);
    // A session that was recorded here gives what it has.
    let own = desk.fixture.path("own");
    let to = ["rollback", "restore", &desk.session, "--to", own.to_str().unwrap()];
    desk.fixture.nono(&to).success();
    assert_eq!(mode(&own.join("first")), 0o4751);
    // In place: what has them keeps them, and nothing gets them anew.
    let first = desk.fixture.project().join("first");
    fs::write(&first, "changed").unwrap();
    fs::set_permissions(&first, PermissionsExt::from_mode(0o644)).unwrap();
    let told = restore(&["--force"]).fails(1, "2 paths are not as they were");
    assert!(told.stdout.contains("--with-privileges"), "{}", told.stdout);
    assert_eq!((fs::read_to_string(&first).unwrap(), mode(&first)), ("1\n".to_owned(), 0o751));
    // A restore here can be taken back here.
    desk.fixture.nono(&["--root", &root, "redo", "--yes"]).success();
    assert_eq!((fs::read_to_string(&first).unwrap(), mode(&first)), ("changed".to_owned(), 0o644));
    restore(&["--force", "--with-privileges"]).success();
    assert_eq!(mode(&first), 0o4751);
}

/// A session recorded here, and an archive of its next snapshot, which another machine took.
fn went_on_elsewhere() -> (Desk, String) {
    let desk = Desk::new();
    desk.create(0, "0.tar.zst", &[]);
    let project = desk.fixture.project();
    fs::write(project.join("first"), "here").unwrap();
    desk.fixture.nono(&["snapshot", "--session", &desk.session]).success();
    desk.create(1, "1.tar.zst", &[]);
    // Another machine goes on from there, and its snapshot comes back.
    desk.import("there", &["0.tar.zst", "1.tar.zst"]).success();
    let there = desk.at("there");
    fs::write(project.join("first"), "there").unwrap();
    fs::write(project.join("report.md"), "there").unwrap();
    let further = ["--root", &there, "snapshot", "--session", &desk.session];
    desk.fixture.nono(&further).success();
    let (id, file) = (format!("{}/2", desk.session), desk.at("2.tar.zst"));
    let create = ["--root", &there, "archive", "create", &id, "-o", &file];
    desk.fixture.nono(&create).success();
    fs::write(project.join("first"), "here").unwrap();
    fs::write(project.join("report.md"), "mine").unwrap();
    (desk, file)
}

#[test]
fn a_snapshot_that_an_archive_adds_is_no_end_of_a_session_recorded_here() {
    let (desk, file) = went_on_elsewhere();
    let project = desk.fixture.project();
    let before = desk.fixture.nono(&["rollback", "list", "--json"]).success().json();
    let import = ["archive", "import", &file];
    desk.fixture.nono(&import).success();
    let shown = desk.fixture.nono(&["rollback", "show", &desk.session]).success();
    assert!(shown.says("snapshot 2 (received in an archive)"), "{}", shown.stdout);
    let list = desk.fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["changes"], before[0]["changes"]);
    let diff = desk.fixture.nono(&["rollback", "diff", "latest", "--name-only"]).success();
    assert_eq!(diff.stdout, "deep/linked\nfirst\n");
    // A later file of a person stays, and the other machine's work is no conflict.
    let undo = desk.fixture.nono(&["undo", "--yes", &desk.session]);
    assert_eq!(fs::read_to_string(project.join("report.md")).unwrap(), "mine", "{}", undo.stderr);
}

#[test]
fn the_versions_that_an_archive_added_are_named_and_stand_apart() {
    let (desk, file) = went_on_elsewhere();
    let project = desk.fixture.project();
    desk.fixture.nono(&["archive", "import", &file]).success();
    fs::write(project.join("first"), "here again").unwrap();
    desk.fixture.nono(&["snapshot", "--session", &desk.session]).success();
    let log = desk.fixture.nono(&["log", "--json", "first"]).success().json();
    let versions = log["versions"].as_array().unwrap().iter();
    let told: Vec<_> = versions
        .map(|it| (it["number"].as_u64().unwrap(), it["origin"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [(3, "command"), (2, "received"), (1, "command"), (0, "first")], "{log:#}");
    assert_eq!(log["versions"][0]["size_delta"], 6, "the change of what was here");
    let log = desk.fixture.nono(&["log", "first"]).success();
    assert_eq!(log.stdout.matches("received in an archive").count(), 1, "{}", log.stdout);
    let log = desk.fixture.nono(&["log", "report.md"]).success();
    assert!(log.says("received in an archive") && log.says("/2"), "{}", log.stdout);
    let found = desk.fixture.nono(&["rollback", "find", "--json", "first"]).success().json();
    assert_eq!(found[0]["received"], false, "{found}");
}

#[test]
fn no_session_is_called_latest() {
    let desk = run_in_archives();
    let store = desk.fixture.store();
    fs::rename(store.join(&desk.session), store.join("latest")).unwrap();
    let listed = desk.fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(listed[0]["session_id"], "latest", "{listed:#}");
    for words in [&["status"][..], &["rollback", "show", "latest"], &["undo", "--dry-run"]] {
        // The user renamed it by hand. It is found where it tracks, and nothing recurs for ever.
        let done = desk.fixture.nono(words);
        assert!(done.code <= 1, "{words:?}: {} {}", done.code, done.stderr);
    }
    let create = ["archive", "create", "latest/0", "-o", &desk.at("named")];
    desk.fixture.nono(&create).fails(1, "latest/0");
}

#[test]
fn a_session_that_goes_on_with_more_paths_can_be_received() {
    let mut desk = Desk::new();
    let take = |paths: &[PathBuf]| {
        let manager = nono_engine::snapshot::SnapshotManager::new(
            &desk.fixture.store().join("20260101-000000-1"),
            paths,
            nono_engine::walk::ExclusionConfig::nothing(),
            nono_engine::snapshot::Budget::default(),
        );
        let manager = manager.unwrap();
        match manager.session().snapshot_numbers().unwrap().len() {
            0 => drop(manager.create_baseline().unwrap()),
            _ => drop(manager.create_incremental().unwrap()),
        }
        manager.session().metadata().unwrap().tracked_paths
    };
    let (project, other) = (desk.fixture.project(), desk.fixture.path("other"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("more"), "more").unwrap();
    let only = std::slice::from_ref(&project);
    assert_eq!(take(only), only);
    assert_eq!(take(&[project.clone(), other.clone()]), [project, other]);
    desk.session = "20260101-000000-1".to_owned();
    for (number, name) in [(0, "0.tar.zst"), (1, "1.tar.zst")] {
        desk.create(number, name, &["--full"]);
    }
    desk.import("there", &["0.tar.zst", "1.tar.zst"]).success();
    let root = desk.at("there");
    desk.fixture.nono(&["--root", &root, "rollback", "verify", &desk.session]).success();
}
