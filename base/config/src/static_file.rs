//! The static mappings of a file of their own.

use std::io;
use std::path::Path;

use crate::Diagnostic;
use crate::check::public::{PublicContext, static_errors};
use crate::public_types::{PublicSettings, StaticSettings};

/// Most lines with an error that are named.
const LINES_NAMED_MAX: usize = 20;
/// Most static mappings of a file.
const MAPPINGS_MAX: usize = 1_000_000;

/// Returns all static mappings: those of the settings, then those of the file that they name.
/// `read` returns the text of a file, `context` is what the mappings must fit.
///
/// # Errors
/// All lines with an error, at most 20 of them named, or a file that cannot be read.
pub fn load_statics(
    settings: &PublicSettings,
    context: &PublicContext<'_>,
    read: impl FnOnce(&Path) -> io::Result<String>,
) -> Result<Vec<StaticSettings>, Vec<Diagnostic>> {
    let mut all = settings.statics.clone();
    let Some(path) = &settings.static_file else { return Ok(all) };
    let file = path.display().to_string();
    let mut errors = Errors { file: &file, named: Vec::new(), more: 0 };
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => {
            let fix = "write the file, or remove public.static_file";
            errors.push(0, format!("cannot be read: {error}"), fix);
            return Err(errors.named);
        }
    };
    // Of each mapping in the file its line; those before stand in the settings.
    let mut lines = vec![None; all.len()];
    for (line, text) in text.strip_prefix('\u{feff}').unwrap_or(&text).lines().enumerate() {
        let text = text.split('#').next().unwrap_or(text).trim();
        match text.parse() {
            _ if text.is_empty() => {}
            Ok(mapping) => {
                all.push(mapping);
                lines.push(Some(line));
            }
            Err(why) => errors.push(line, why, FIX),
        }
    }
    if all.len() > MAPPINGS_MAX {
        errors.push(0, format!("{} mappings, at most {MAPPINGS_MAX} fit", all.len()), "split them");
    }
    for (at, message, fix) in static_errors(&all, context) {
        // Those of the settings have been reported there.
        if let Some(line) = lines[at] {
            errors.push(line, message, fix);
        }
    }
    errors.finish().map(|()| all)
}

pub(crate) const FIX: &str =
    "write `SUBSCRIBER tcp|udp INSIDE:PORT PUBLIC:PORT` or `SUBSCRIBER all INSIDE PUBLIC`";

struct Errors<'f> {
    file: &'f str,
    named: Vec<Diagnostic>,
    more: usize,
}

impl Errors<'_> {
    fn push(&mut self, line: usize, message: String, fix: &str) {
        if self.named.len() >= LINES_NAMED_MAX {
            self.more += 1;
            return;
        }
        self.named.push(Diagnostic {
            file: self.file.to_owned(),
            line: line + 1,
            column: 1,
            key: "public.static_file".to_owned(),
            message,
            fix: fix.to_owned(),
        });
    }

    fn finish(mut self) -> Result<(), Vec<Diagnostic>> {
        if let (1.., Some(last)) = (self.more, self.named.last().cloned()) {
            let message = format!("{} more lines are wrong", self.more);
            self.named.push(Diagnostic { message, fix: "is this the right file?".into(), ..last });
        }
        if self.named.is_empty() { Ok(()) } else { Err(self.named) }
    }
}
