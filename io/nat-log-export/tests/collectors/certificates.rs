//! Authorities and certificates of a test, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate and its key, PEM.
pub(crate) struct Certificate {
    pub(crate) file: PathBuf,
    pub(crate) key: PathBuf,
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").current_dir(folder).args(arguments).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn files(folder: &Path, name: &str) -> Certificate {
    let file = |kind| folder.join(format!("{name}.{kind}"));
    Certificate { file: file("pem"), key: file("key") }
}

/// Makes an authority.
pub(crate) fn authority(folder: &Path, name: &str) -> Certificate {
    let (pem, key, subject) = (format!("{name}.pem"), format!("{name}.key"), format!("/CN={name}"));
    let mut arguments = vec!["req", "-x509", "-days", "2", "-subj", &subject];
    arguments.extend(NEW_KEY);
    arguments.extend(["-keyout", &key, "-out", &pem]);
    openssl(folder, &arguments);
    files(folder, name)
}

/// Makes a certificate for `address`, signed by the authority called `by`.
pub(crate) fn certificate(folder: &Path, by: &str, name: &str, address: &str) -> Certificate {
    let (pem, key, request) = (format!("{name}.pem"), format!("{name}.key"), format!("{name}.csr"));
    let subject = format!("/CN={name}");
    let mut arguments = vec!["req", "-new", "-subj", &subject];
    arguments.extend(NEW_KEY);
    arguments.extend(["-keyout", &key, "-out", &request]);
    openssl(folder, &arguments);
    let extensions = format!("{name}.ext");
    let uses = "extendedKeyUsage=serverAuth,clientAuth";
    let text = format!("subjectAltName=IP:{address}\n{uses}\n");
    std::fs::write(folder.join(&extensions), text).unwrap();
    let (by_pem, by_key) = (format!("{by}.pem"), format!("{by}.key"));
    let mut arguments = vec!["x509", "-req", "-days", "2", "-in", &request, "-CA", &by_pem];
    arguments.extend(["-CAkey", &by_key, "-CAcreateserial", "-extfile", &extensions, "-out", &pem]);
    openssl(folder, &arguments);
    files(folder, name)
}
