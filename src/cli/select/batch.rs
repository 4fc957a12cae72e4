//! Requests from a file or a pipe: one a line, answered one a line, in their order.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use scalewright::oracle::evaluate;
use serde::Serialize;

use super::answer::Answer;
use super::question::Question;
use crate::cli::{Trouble, question};

/// No request is longer than this many bytes, so that no input is held whole.
const LONGEST: u64 = 1 << 16;

/// What is answered to a line that is no request.
#[derive(Serialize)]
struct Malformed {
    line: usize,
    error: String,
}

pub(super) fn run(requests: &Path, out: &mut dyn Write) -> Result<(), Trouble> {
    let refuse = |error: io::Error| question(format!("{} cannot be read: {error}", requests.display()));
    let input: Box<dyn Read> = if requests == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(requests).map_err(refuse)?)
    };
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let (mut line, mut all_well, mut text) = (0, true, Vec::new());
    while read_line(&mut input, &mut text).map_err(refuse)? {
        line += 1;
        if let Err(error) = answer(line, &text, &mut out)? {
            all_well = false;
            serde_json::to_writer(&mut out, &Malformed { line, error }).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        // Whoever waits for an answer before the next request gets it.
        if !input.buffer().contains(&b'\n') {
            out.flush()?;
        }
    }
    out.flush()?;
    if all_well { Ok(()) } else { Err(Trouble::Wrong) }
}

/// Reads the next line into `text`; of one that is too long, its beginning. False at the end.
fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    text.clear();
    input.take(LONGEST + 1).read_until(b'\n', text)?;
    if text.last() == Some(&b'\n') {
        text.pop();
        return Ok(true);
    }
    if text.len() as u64 > LONGEST {
        input.skip_until(b'\n')?;
    }
    Ok(!text.is_empty())
}

/// Answers the request `text`, or says what is wrong with it.
fn answer(line: usize, text: &[u8], out: &mut impl Write) -> io::Result<Result<(), String>> {
    let (oracle, request) = match read(text).and_then(Question::request) {
        Ok(request) => request,
        Err(error) => return Ok(Err(error)),
    };
    let selection = evaluate(oracle, &request);
    Answer::new(oracle.family, &selection).of_line(line).write_json(out).map(Ok)
}

fn read(text: &[u8]) -> Result<Question, String> {
    if text.len() as u64 > LONGEST {
        return Err(format!("a request has at most {LONGEST} bytes"));
    }
    serde_json::from_slice(text).map_err(|error| {
        // A request is a line, so what serde_json calls line 1 would mislead.
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let place = format!(" at line {line} column {column}");
        format!("column {column}: {}", message.strip_suffix(&place).unwrap_or(&message))
    })
}
