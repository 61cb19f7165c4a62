//! The files that a configuration names: their content in its place.

use std::io;
use std::path::Path;

use ipnet::Ipv4Net;

use crate::Diagnostic;
use crate::check::public::PublicContext;
use crate::desired::Desired;
use crate::desired::json::BYTES_MAX;
use crate::policy_types::PolicySettings;
use crate::public_types::PublicSettings;
use crate::set_file::load_sets;
use crate::static_file::load_statics;
use crate::types::{Access, Config};

impl Config {
    /// Returns the configuration with what the files of its sets and static mappings have in
    /// itself, as if it named no file. `read` returns the text of a file.
    ///
    /// # Errors
    /// All errors in these files.
    pub fn with_files(
        mut self,
        read: impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let public = self.shards.iter().flat_map(|shard| &shard.public);
        let settings = (&self.policy, &self.public);
        (self.policy, self.public) = filled(settings, &self.access, public, read)?;
        Ok(self)
    }
}

impl Desired {
    /// As [`Config::with_files`].
    ///
    /// # Errors
    /// All errors in the files, or that etcd has no room for what they have.
    pub fn with_files(
        mut self,
        read: impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let public = self.shards.iter().flat_map(|shard| &shard.public);
        let settings = (&self.policy, &self.public);
        (self.policy, self.public) = filled(settings, &self.access, public, read)?;
        let bytes = self.to_json().len();
        if bytes > BYTES_MAX {
            return Err(vec![Diagnostic {
                file: "etcd".to_owned(),
                line: 1,
                column: 1,
                key: "set".to_owned(),
                message: format!("the cluster takes {bytes} bytes, at most {BYTES_MAX} fit"),
                fix: "use fewer, larger prefixes in the files of sets, and fewer static mappings"
                    .to_owned(),
            }]);
        }
        Ok(self)
    }
}

fn filled<'n>(
    (policy, public): (&PolicySettings, &PublicSettings),
    access: &Access,
    nets: impl Iterator<Item = &'n Ipv4Net>,
    mut read: impl FnMut(&Path) -> io::Result<String>,
) -> Result<(PolicySettings, PublicSettings), Vec<Diagnostic>> {
    let mut nets: Vec<Ipv4Net> = nets.copied().collect();
    nets.sort_unstable();
    let sets = load_sets(policy, &mut read);
    let statics = load_statics(public, &PublicContext { access, public: &nets }, &mut read);
    match (sets, statics) {
        (Ok(sets), Ok(statics)) => {
            let public = PublicSettings { statics, static_file: None, ..public.clone() };
            Ok((policy.clone().with_entries(&sets), public.sorted()))
        }
        (sets, statics) => {
            let errors = [sets.err(), statics.err()].into_iter().flatten();
            Err(errors.flatten().collect())
        }
    }
}
