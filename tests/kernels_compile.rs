//! Every emitted kernel compiles without a warning, for the oldest and the newest architectures that
//! the crate's kernels are for. NVRTC needs no GPU; where it is absent, the test says so.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::{result, sys};

const KERNELS: &str = "generated/cuda";
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90a", "sm_100a"];

/// Files under `folder`, at any depth, whose name ends in `.extension`.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn kernels() -> Vec<PathBuf> {
    let found = files(Path::new(KERNELS), "cu");
    assert!(!found.is_empty(), "{KERNELS} holds no kernel");
    found
}

/// What NVRTC has to say about `source`: `Err` if it does not compile, else the warnings.
fn compile(source: &CStr, name: &CStr, architecture: &str) -> Result<String, String> {
    // Without contraction to FMA, as the engine compiles them: bytes have to match the CPU.
    let options = [format!("--gpu-architecture={architecture}"), "--fmad=false".to_owned()];
    let program = result::create_program(source, Some(name)).map_err(|error| error.to_string())?;
    // SAFETY: `program` comes from `create_program`, and is destroyed below, after its last use.
    let (compiled, log) =
        unsafe { (result::compile_program(program, &options), result::get_program_log(program)) };
    // SAFETY: as above; this is the last use.
    unsafe { result::destroy_program(program) }.map_err(|error| error.to_string())?;
    let log = log.map_err(|error| error.to_string())?;
    let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0).collect();
    let log = String::from_utf8_lossy(&log).trim().to_owned();
    compiled.map(|()| log.clone()).map_err(|error| format!("{error}\n{log}"))
}

#[test]
fn kernels_compile_without_a_warning() {
    // SAFETY: loading a library runs its initialisers; NVRTC's have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        // To the stream itself: what a passing test prints by macro is not shown.
        writeln!(std::io::stdout(), "skipped: no NVRTC").unwrap();
        return;
    }
    let mut findings = Vec::new();
    for path in kernels() {
        let name = CString::new(path.display().to_string()).unwrap();
        let source = CString::new(fs::read(&path).unwrap()).unwrap();
        for architecture in ARCHITECTURES {
            match compile(&source, &name, architecture) {
                Ok(log) if log.is_empty() => {}
                Ok(log) | Err(log) => findings.push(format!("{} for {architecture}: {log}", path.display())),
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
}

#[test]
fn a_warning_and_an_error_are_seen() {
    // SAFETY: as above.
    if !unsafe { sys::is_culib_present() } {
        writeln!(std::io::stdout(), "skipped: no NVRTC").unwrap();
        return;
    }
    let warns = compile(c"extern \"C\" __global__ void kernel() { int unused; }", c"warns.cu", "sm_80");
    assert!(warns.is_ok_and(|log| log.contains("unused")));
    let fails = compile(c"extern \"C\" __global__ void kernel() { missing(); }", c"fails.cu", "sm_80");
    assert!(fails.is_err_and(|log| log.contains("missing")));
}

#[test]
fn kernels_are_self_contained() {
    for path in kernels() {
        let source = fs::read_to_string(&path).unwrap();
        assert!(!source.contains("#include"), "{} includes something", path.display());
    }
}

/// Names like `kernel.cu` in Rust source.
fn kernel_names(source: &str) -> impl Iterator<Item = &str> {
    source
        .split(|character: char| !(character.is_ascii_alphanumeric() || "_.".contains(character)))
        .filter(|word| word.ends_with(".cu"))
}

#[test]
fn what_generated_modules_refer_to_is_there() {
    let present: BTreeSet<String> =
        kernels().iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for path in files(Path::new("generated"), "rs") {
        let source = fs::read_to_string(&path).unwrap();
        for name in kernel_names(&source) {
            assert!(
                present.contains(name),
                "{} refers to {KERNELS}/{name}, which is not there",
                path.display()
            );
        }
    }
}
