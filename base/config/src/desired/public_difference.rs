//! The changes of static mappings and of addresses out of service.

use ipnet::Ipv4Net;

use crate::desired::difference::{Effect, SettingChange};
use crate::public_types::PublicSettings;

/// Most static mappings of which each has a change of its own.
const NAMED_MAX: usize = 10;

/// Returns the changes of `[public]` in `new`. Empty exactly if both are equal.
pub(crate) fn public_difference(old: &PublicSettings, new: &PublicSettings) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    let mut push = |key: &str, what: String, effect| {
        let subject = format!("public.{key}");
        changes.push(SettingChange { subject, what, effect, is_for_restarts: false });
    };
    let texts = |settings: &PublicSettings| -> Vec<String> {
        settings.statics.iter().map(ToString::to_string).collect()
    };
    let (before, after) = (texts(old), texts(new));
    let only = |these: &[String], others: &[String]| -> Vec<String> {
        let others: std::collections::HashSet<&String> = others.iter().collect();
        these.iter().filter(|it| !others.contains(it)).cloned().collect()
    };
    for (gone, word, effect) in [
        (only(&before, &after), "removed", Effect::EndsStatic),
        (only(&after, &before), "added", Effect::NewFlows),
    ] {
        match gone.len() {
            0..=NAMED_MAX => {
                gone.iter().for_each(|it| push("static", format!("{it} {word}"), effect));
            }
            count => push("static", format!("{count} mappings {word}"), effect),
        }
    }
    if old.static_file != new.static_file {
        let words = |settings: &PublicSettings| {
            settings.static_file.as_ref().map_or("none".into(), |it| it.display().to_string())
        };
        let what = format!("{} -> {}", words(old), words(new));
        push("static_file", what, Effect::EndsStatic);
    }
    for (key, old, new, effect) in [
        ("drain", &old.drain, &new.drain, Effect::NewFlows),
        ("quarantine", &old.quarantine, &new.quarantine, Effect::EndsQuarantined),
    ] {
        let only = |these: &[Ipv4Net], others: &[Ipv4Net]| -> Vec<Ipv4Net> {
            these.iter().filter(|net| !others.contains(net)).copied().collect()
        };
        for net in only(old, new) {
            push(key, format!("{net} given back"), Effect::None);
        }
        for net in only(new, old) {
            push(key, format!("{net} added"), effect);
        }
    }
    changes
}
