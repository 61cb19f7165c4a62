//! A worker's role for a shard, in words; empty on a standalone node.

/// Returns the words for a column.
pub(crate) fn words(role: Option<&str>) -> String {
    match role {
        None => String::new(),
        Some(role @ ("primary" | "acting")) => role.to_owned(),
        Some(role) => format!("copy ({role})"),
    }
}

/// Returns the words behind the name of the worker.
pub(crate) fn suffix(role: Option<&str>) -> String {
    role.map_or_else(String::new, |_| format!(", {}", words(role)))
}
