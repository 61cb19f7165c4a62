//! TLS, users, and a role that may touch one cluster's keys only.

use weir_etcd::{Cause, ClaimEvent, EtcdOptions, Key, KeyRange, Outcome, Password, TlsFiles, User};

use crate::bench::{Copy, done, next_of_session, node_record, options, start, wait, write};
use crate::certificates::{authority, certificate};
use crate::etcd::{Etcd, wait_for};

/// Starts an etcd that speaks only TLS and requires a certificate of its own authority.
fn encrypted() -> (Etcd, TlsFiles) {
    let mut etcd = Etcd::new("https");
    etcd.argument("--client-cert-auth", "true".as_ref());
    let (directory, address) = (etcd.directory().to_owned(), etcd.address().to_owned());
    let ca = authority(&directory, "ca");
    let server = certificate(&directory, "ca", "server", "etcd", &address);
    let client = certificate(&directory, "ca", "client", "client", &address);
    etcd.argument("--cert-file", &server.file);
    etcd.argument("--key-file", &server.key);
    etcd.argument("--trusted-ca-file", &ca.file);
    for (option, file) in [("cacert", &ca.file), ("cert", &client.file), ("key", &client.key)] {
        etcd.control_option(format!("--{option}={}", file.display()));
    }
    etcd.run();
    // A copy of the authority: the test may change what the client trusts without changing the
    // daemon's file.
    let trusted = directory.join("trusted.pem");
    std::fs::copy(&ca.file, &trusted).unwrap();
    let tls = TlsFiles { ca: trusted, client: Some((client.file, client.key)), server_name: None };
    (etcd, tls)
}

fn with_tls(etcd: &Etcd, tls: &TlsFiles) -> EtcdOptions {
    EtcdOptions { tls: Some(tls.clone()), ..options(&[etcd.endpoint()]) }
}

/// Enables authentication as the operator's guide does.
fn protect(etcd: &mut Etcd) {
    let commands: [&[&str]; 7] = [
        &["role", "add", "weir-north"],
        &["role", "grant-permission", "weir-north", "--prefix=true", "readwrite", "/weir/north/"],
        &["user", "add", "weir:secret"],
        &["user", "grant-role", "weir", "weir-north"],
        &["user", "add", "root:root"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ];
    for command in commands {
        etcd.control(command);
    }
    etcd.control_option("--user=root:root".to_owned());
}

fn user(password: &str) -> Option<User> {
    Some(User { name: "weir".to_owned(), password: Password::Given(password.to_owned()) })
}

#[test]
fn a_role_of_one_prefix_suffices_and_excludes_other_clusters() {
    let (mut etcd, tls) = encrypted();
    protect(&mut etcd);
    let permitted = EtcdOptions { user: user("secret"), ..with_tls(&etcd, &tls) };
    let cluster = start(permitted.clone());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    let event = wait(&cluster, "registration", next_of_session(&mut session));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
    let mut mirror = cluster.mirror(KeyRange::All, None);
    let mut copy = Copy::default();
    write(&cluster, 1, "a");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(1, "a"));

    let stranger = start(EtcdOptions { cluster: "south".parse().unwrap(), ..permitted.clone() });
    let outcome = wait(&stranger, "refusal", stranger.store().put(Key::Meta, None, "x".into()));
    let Outcome::Refused(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.cause, Cause::PermissionDenied);

    // A restart of etcd makes all tokens invalid.
    etcd.kill();
    copy.until(&cluster, &mut mirror, "notice", |copy| copy.is_stale);
    etcd.run();
    copy.until(&cluster, &mut mirror, "list", |copy| !copy.is_stale);
    write(&cluster, 1, "b");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(1, "b"));
    wait(&cluster, "end", session.close()).unwrap();
}

#[test]
fn a_wrong_password_is_reported_as_the_cause() {
    let (mut etcd, tls) = encrypted();
    protect(&mut etcd);
    for user in [user("wrong"), None] {
        let cluster = start(EtcdOptions { user, ..with_tls(&etcd, &tls) });
        let error = wait(&cluster, "refusal", cluster.store().get(&Key::Meta)).unwrap_err();
        // Without a user, etcd takes the name in the certificate for one, which it does not know.
        let causes = [Cause::NotAuthenticated, Cause::PermissionDenied];
        assert!(causes.contains(&error.cause), "{error}");
        assert!(error.to_string().contains(&etcd.endpoint()), "{error}");
        let outcome = wait(&cluster, "refusal", cluster.store().put(Key::Meta, None, vec![]));
        assert!(matches!(outcome, Outcome::Unavailable(_) | Outcome::Refused(_)), "{outcome:?}");
    }
}

#[test]
fn a_renewed_certificate_is_trusted_and_another_authority_is_not() {
    let (mut etcd, tls) = encrypted();
    let cluster = start(with_tls(&etcd, &tls));
    write(&cluster, 1, "a");
    let (directory, address) = (etcd.directory().to_owned(), etcd.address().to_owned());
    certificate(&directory, "ca", "server", "etcd renewed", &address);
    etcd.kill();
    etcd.run();
    wait_for("trust", || wait(&cluster, "answer", cluster.store().get(&Key::Meta)).is_ok());

    let other = authority(&directory, "other");
    let server = certificate(&directory, "other", "foreign", "etcd", &address);
    etcd.kill();
    etcd.argument("--cert-file", &server.file);
    etcd.argument("--key-file", &server.key);
    etcd.control_option(format!("--cacert={}", other.file.display()));
    etcd.run();
    wait_for("distrust", || {
        let answer = wait(&cluster, "answer", cluster.store().get(&Key::Meta));
        answer.is_err_and(|error| error.cause == Cause::Tls)
    });
    // The operator installs the new authority; the process runs on.
    std::fs::copy(&other.file, &tls.ca).unwrap();
    wait_for("trust", || wait(&cluster, "answer", cluster.store().get(&Key::Meta)).is_ok());
    done(wait(&cluster, "write", cluster.store().put(Key::Meta, None, "{}".into())));
}

#[test]
fn a_client_without_a_certificate_gets_a_tls_error() {
    let (etcd, tls) = encrypted();
    let cluster = start(with_tls(&etcd, &TlsFiles { client: None, ..tls }));
    // etcd refuses after the client's last handshake message: sometimes only the broken connection
    // is seen.
    wait_for("distrust", || {
        let error = wait(&cluster, "refusal", cluster.store().get(&Key::Meta)).unwrap_err();
        assert!(!error.may_have_happened);
        error.cause == Cause::Tls
    });
}

#[test]
fn a_missing_tls_file_is_reported_at_the_start() {
    let tls = TlsFiles { ca: "/nonexistent/ca.pem".into(), client: None, server_name: None };
    let mut options = options(&["https://127.0.0.1:1".to_owned()]);
    options.tls = Some(tls);
    let errors = weir_etcd::EtcdCluster::start(options, || ()).unwrap_err();
    assert!(errors[0].to_string().starts_with("/nonexistent/ca.pem cannot be read"));
}
