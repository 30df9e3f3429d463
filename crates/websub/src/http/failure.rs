//! Descriptions of failed requests, which name the usual cause.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError};

use crate::probe::FailureCause;

/// A certificate that no trusted authority has signed.
const NOT_TRUSTED: &str = "its certificate is self-signed, or signed by an authority that is not trusted: name it, or \
                           its authority's certificate, in ca_file";
/// A certificate as `openssl req -x509` makes it by default.
const SELF_SIGNED_AUTHORITY: &str = "its certificate is self-signed as an authority's own (CA:TRUE), which no server may \
                                     show, named in ca_file or not: make one with basicConstraints=CA:FALSE and name \
                                     that in ca_file";

/// Describes a failure with its causes. The URL is left out: it may hold a secret.
pub fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    if let Some(words) = causes(&error)
        .find_map(tls_error)
        .and_then(describe_tls_error)
    {
        return words;
    }
    // The outer error only repeats that a request was sent.
    let told: Vec<String> = causes(&error)
        .filter(|cause| !cause.is::<reqwest::Error>())
        .map(ToString::to_string)
        .filter(|words| !words.starts_with("client error ("))
        .collect();
    let cause = if told.is_empty() {
        error.to_string()
    } else {
        told.join(": ")
    };
    let mut http_errors = causes(&error).filter_map(|cause| cause.downcast_ref::<hyper::Error>());
    if error.is_timeout() {
        "timed out".to_owned()
    } else if error.is_dns() {
        format!("its host name cannot be resolved: {cause}")
    } else if let Some(cause) = cause.strip_prefix("tunnel error: ") {
        format!("cannot connect through the proxy: {cause}")
    } else if error.is_connect() {
        format!("cannot connect: {cause}")
    } else if http_errors.any(hyper::Error::is_parse) {
        format!("it does not answer in HTTP; is its address https? ({cause})")
    } else {
        cause
    }
}

/// Describes a failure in the words of the system and of the TLS library, without the URL.
pub fn in_technical_words(error: reqwest::Error) -> String {
    let error = error.without_url();
    if error.is_timeout() {
        return "timed out".to_owned();
    }
    // Its own words name only a type.
    if cause(&error) == FailureCause::SelfSignedAuthority {
        return SELF_SIGNED_AUTHORITY.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    for cause in causes(&error).map(ToString::to_string) {
        if !words.iter().any(|told| told.contains(&cause)) {
            words.push(cause);
        }
    }
    words.join(": ")
}

/// Returns the usual cause of a failed request, by the types of its errors.
pub fn cause(error: &reqwest::Error) -> FailureCause {
    if error.is_timeout() {
        return FailureCause::Timeout;
    }
    if error.is_dns() {
        return FailureCause::Name;
    }
    if let Some(error) = causes(error).find_map(tls_error) {
        return tls_cause(error);
    }
    match causes(error).find_map(io_cause) {
        // A server without TLS may close the connection during the handshake.
        Some(FailureCause::NoTls) if !error.is_connect() => FailureCause::Unknown,
        cause => cause.unwrap_or(FailureCause::Unknown),
    }
}

/// Returns the cause that an error of the system names, which may be inside another.
fn io_cause(error: &(dyn Error + 'static)) -> Option<FailureCause> {
    let error = error.downcast_ref::<io::Error>()?;
    match error.kind() {
        ErrorKind::ConnectionRefused => Some(FailureCause::Refused),
        ErrorKind::TimedOut => Some(FailureCause::Timeout),
        ErrorKind::UnexpectedEof => Some(FailureCause::NoTls),
        _ => io_cause(error.get_ref()?),
    }
}

fn tls_cause(error: &rustls::Error) -> FailureCause {
    use CertificateError as Flaw;
    let flaw = match error {
        rustls::Error::InvalidMessage(_) => return FailureCause::NoTls,
        rustls::Error::InvalidCertificate(flaw) => flaw,
        _ => return FailureCause::Unknown,
    };
    match flaw {
        // The second is that of an authority with a known name and another key.
        Flaw::UnknownIssuer | Flaw::BadSignature => FailureCause::UnknownIssuer,
        Flaw::Expired | Flaw::ExpiredContext { .. } => FailureCause::Expired,
        Flaw::NotValidYet | Flaw::NotValidYetContext { .. } => FailureCause::NotYetValid,
        Flaw::NotValidForName | Flaw::NotValidForNameContext { .. } => FailureCause::OtherName,
        flaw if is_ca_certificate(flaw) => FailureCause::SelfSignedAuthority,
        _ => FailureCause::Unknown,
    }
}

/// Returns an error and its chain of causes, down to the system's own.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let error: &'a (dyn Error + 'static) = error;
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Returns the error of TLS that an error is, or that is inside one of the system's.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inside = || error.downcast_ref::<io::Error>()?.get_ref();
    error.downcast_ref().or_else(|| tls_error(inside()?))
}

fn describe_tls_error(error: &rustls::Error) -> Option<String> {
    use rustls::Error::{AlertReceived, InvalidCertificate};
    Some(match (tls_cause(error), error) {
        (FailureCause::NoTls, _) => {
            "it does not answer in TLS; is its address http?".to_owned()
        }
        (FailureCause::UnknownIssuer, _) => NOT_TRUSTED.to_owned(),
        (FailureCause::Expired, _) => {
            "its certificate has expired, or this machine's clock is wrong".to_owned()
        }
        (FailureCause::NotYetValid, _) => {
            "its certificate is not valid yet, or this machine's clock is wrong".to_owned()
        }
        (FailureCause::OtherName, InvalidCertificate(flaw)) => {
            format!("its certificate is another host's ({flaw}): correct url or publish_url")
        }
        (FailureCause::SelfSignedAuthority, _) => SELF_SIGNED_AUTHORITY.to_owned(),
        (_, InvalidCertificate(flaw)) => format!("its certificate is not accepted: {flaw}"),
        (_, AlertReceived(AlertDescription::CertificateRequired)) => {
            "it wants a client certificate: set client_cert and client_key".to_owned()
        }
        (_, AlertReceived(
            alert @ (AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate),
        )) => format!("it does not take our certificate ({alert:?}): correct client_cert and client_key"),
        (_, AlertReceived(AlertDescription::HandshakeFailure)) => {
            "it refuses the TLS handshake: it may want a client certificate (client_cert and client_key)".to_owned()
        }
        _ => return None,
    })
}

/// Returns true for the certificate of an authority that a server shows as its own, as many a self-signed one is. The
/// crate that finds out is not among ours, so its error is known by its text alone.
fn is_ca_certificate(flaw: &CertificateError) -> bool {
    matches!(flaw, CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use rstest::rstest;
    use rustls::InvalidMessage;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::time::timeout;

    use super::*;

    /// Listens at an address where no more connections are accepted: their packets are dropped.
    async fn dropping(address: SocketAddr) -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(0).unwrap();
        let mut waiting = Vec::new();
        let connect = || timeout(Duration::from_millis(200), TcpStream::connect(address));
        while let Ok(connected) = connect().await {
            waiting.push(connected.unwrap());
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn each_address_of_a_host_is_tried_in_the_time_of_a_request() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let first = SocketAddr::from(([127, 0, 0, 2], good.local_addr().unwrap().port()));
        let _dropping = dropping(first).await;
        let addresses = [first, good.local_addr().unwrap()];
        tokio::spawn(async move {
            let (mut stream, _) = good.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        });
        let client = crate::http::client::builder(Duration::from_secs(8))
            .resolve_to_addrs("e.org", &addresses)
            .build()
            .unwrap();
        let answered = client.get(format!("http://e.org:{}/", first.port()));
        assert_eq!(answered.send().await.unwrap().status(), 204);
    }

    #[rstest]
    #[case(
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
        FailureCause::NoTls
    )]
    #[case(CertificateError::UnknownIssuer.into(), FailureCause::UnknownIssuer)]
    #[case(CertificateError::BadSignature.into(), FailureCause::UnknownIssuer)]
    #[case(CertificateError::Expired.into(), FailureCause::Expired)]
    #[case(CertificateError::NotValidYet.into(), FailureCause::NotYetValid)]
    #[case(CertificateError::NotValidForName.into(), FailureCause::OtherName)]
    #[case(CertificateError::Revoked.into(), FailureCause::Unknown)]
    #[case(rustls::Error::EncryptError, FailureCause::Unknown)]
    fn an_error_of_tls_has_a_cause(#[case] error: rustls::Error, #[case] want: FailureCause) {
        assert_eq!(tls_cause(&error), want, "{error}");
    }

    #[rstest]
    #[case(ErrorKind::ConnectionRefused, Some(FailureCause::Refused))]
    #[case(ErrorKind::TimedOut, Some(FailureCause::Timeout))]
    #[case(ErrorKind::UnexpectedEof, Some(FailureCause::NoTls))]
    #[case(ErrorKind::ConnectionReset, None)]
    fn an_error_of_the_system_has_a_cause_inside_another_too(
        #[case] kind: ErrorKind,
        #[case] want: Option<FailureCause>,
    ) {
        assert_eq!(io_cause(&io::Error::from(kind)), want);
        let inner = io::Error::new(kind, "words");
        assert_eq!(io_cause(&io::Error::other(inner)), want);
    }
}
