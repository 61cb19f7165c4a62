//! Authorities and certificates of a test, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate and its key, PEM.
pub(crate) struct Certificate {
    pub(crate) file: PathBuf,
    pub(crate) key: PathBuf,
}

fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").current_dir(directory).args(arguments).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn files(directory: &Path, name: &str) -> Certificate {
    Certificate {
        file: directory.join(format!("{name}.pem")),
        key: directory.join(format!("{name}.key")),
    }
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// Creates an authority.
pub(crate) fn authority(directory: &Path, name: &str) -> Certificate {
    let (pem, key, subject) = (format!("{name}.pem"), format!("{name}.key"), format!("/CN={name}"));
    let mut arguments = vec!["req", "-x509", "-days", "2", "-subj", &subject];
    arguments.extend(NEW_KEY);
    arguments.extend(["-keyout", &key, "-out", &pem]);
    openssl(directory, &arguments);
    files(directory, name)
}

/// Creates a certificate for `address` and `subject`, signed by the authority called `by`.
pub(crate) fn certificate(
    directory: &Path,
    by: &str,
    name: &str,
    subject: &str,
    address: &str,
) -> Certificate {
    let (pem, key, request) = (format!("{name}.pem"), format!("{name}.key"), format!("{name}.csr"));
    let subject = format!("/CN={subject}");
    let mut arguments = vec!["req", "-new", "-subj", &subject];
    arguments.extend(NEW_KEY);
    arguments.extend(["-keyout", &key, "-out", &request]);
    openssl(directory, &arguments);
    let extensions = directory.join(format!("{name}.ext"));
    let uses = "extendedKeyUsage=serverAuth,clientAuth";
    std::fs::write(&extensions, format!("subjectAltName=IP:{address}\n{uses}\n")).unwrap();
    let (by_pem, by_key) = (format!("{by}.pem"), format!("{by}.key"));
    openssl(
        directory,
        &[
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            &request,
            "-CA",
            &by_pem,
            "-CAkey",
            &by_key,
            "-CAcreateserial",
            "-extfile",
            extensions.to_str().unwrap(),
            "-out",
            &pem,
        ],
    );
    files(directory, name)
}
