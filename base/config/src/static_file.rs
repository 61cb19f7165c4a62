//! The static mappings of a file of their own.

use std::io;
use std::path::Path;

use crate::Diagnostic;
use crate::check::public::{PublicContext, static_errors};
use crate::line_errors::{LineErrors, entries};
use crate::public_types::{PublicSettings, StaticSettings};

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
    let mut errors = LineErrors::new(&file, "public.static_file".to_owned());
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => {
            return Err(errors.unread(&error, "write the file, or remove public.static_file"));
        }
    };
    // Of each mapping in the file its line; those before stand in the settings.
    let mut lines = vec![None; all.len()];
    for (line, blank, text) in entries(&text) {
        match text.parse() {
            Ok(mapping) => {
                all.push(mapping);
                lines.push(Some(line));
            }
            Err(why) => errors.push(line, blank, why, FIX),
        }
    }
    if all.len() > MAPPINGS_MAX {
        let message = format!("{} mappings, at most {MAPPINGS_MAX} fit", all.len());
        errors.push(0, 0, message, "use fewer, or `all` for one host");
    }
    for (at, message, fix) in static_errors(&all, context) {
        // Those of the settings have been reported there.
        if let Some(line) = lines[at] {
            errors.push(line, 0, message, fix);
        }
    }
    errors.finish().map(|()| all)
}

pub(crate) const FIX: &str =
    "write `SUBSCRIBER tcp|udp INSIDE:PORT PUBLIC:PORT` or `SUBSCRIBER all INSIDE PUBLIC`";
