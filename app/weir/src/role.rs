//! A worker's role for a shard, in words; nothing on a node of its own.

/// In a column.
pub(crate) fn words(role: Option<&str>) -> String {
    match role {
        None => String::new(),
        Some(role @ ("primary" | "acting")) => role.to_owned(),
        Some(role) => format!("copy ({role})"),
    }
}

/// Behind the name of the worker.
pub(crate) fn suffix(role: Option<&str>) -> String {
    role.map_or_else(String::new, |_| format!(", {}", words(role)))
}
