//! The common name in a certificate, as DER has it.
//!
//! TLS has verified the certificate against the authority before anybody looks at it here; its name is read and nothing else. What
//! cannot be read, and what has no common name or several, has none.
//!
//! ```text
//!  Certificate  ::= SEQUENCE { tbsCertificate, .. }                                   RFC 5280, section 4.1
//!  tbs          ::= SEQUENCE { [0] version, serial, algorithm, issuer, validity, subject, .. }
//!  subject      ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value string }
//! ```

/// Tags of DER, X.690.
const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The one common name of a certificate's subject.
pub(crate) fn common_name(der: &[u8]) -> Option<String> {
    let (certificate, _) = content(der, SEQUENCE)?;
    let (mut fields, _) = content(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = content(fields, VERSION)?.1;
    }
    // The serial number; then the algorithm, the issuer and the validity.
    fields = content(fields, INTEGER)?.1;
    for _ in 0..3 {
        fields = content(fields, SEQUENCE)?.1;
    }
    let (mut subject, _) = content(fields, SEQUENCE)?;
    let mut found = None;
    while !subject.is_empty() {
        let (mut parts, rest) = content(subject, SET)?;
        subject = rest;
        while !parts.is_empty() {
            let (part, others) = content(parts, SEQUENCE)?;
            parts = others;
            let (kind, value) = content(part, OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME && found.replace(text(value)?).is_some() {
                return None;
            }
        }
    }
    found
}

/// A string and nothing after it.
fn text(bytes: &[u8]) -> Option<String> {
    let tag = *bytes.first()?;
    let (text, []) = content(bytes, tag)? else { return None };
    match tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => String::from_utf8(text.to_vec()).ok(),
        _ => None,
    }
}

/// The content of the first element, which must have this tag, and what follows it.
fn content(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // Longer lengths have up to four bytes of their own; certificates are no larger.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length))?
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    /// A certificate with these names, in DER.
    fn certificate(names: impl IntoIterator<Item = (DnType, DnValue)>) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["host.example".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        names.into_iter().for_each(|(kind, value)| params.distinguished_name.push(kind, value));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn the_common_name_of_the_subject_is_found() {
        let plain = certificate([(DnType::CommonName, utf8("alice"))]);
        assert_eq!(common_name(&plain).as_deref(), Some("alice"));
        let among_others = [
            (DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap())),
            (DnType::OrganizationName, utf8(&"clinic ".repeat(40))),
            (DnType::CommonName, DnValue::PrintableString("bob".try_into().unwrap())),
            (DnType::OrganizationalUnitName, utf8("admin")),
        ];
        assert_eq!(common_name(&certificate(among_others)).as_deref(), Some("bob"));
        assert_eq!(common_name(&certificate([(DnType::CommonName, utf8("grün"))])).as_deref(), Some("grün"));
    }

    #[test]
    fn what_has_no_one_name_has_none() {
        assert_eq!(common_name(&certificate([])), None);
        assert_eq!(common_name(&certificate([(DnType::OrganizationName, utf8("alice"))])), None);
        let wide = DnValue::BmpString("alice".try_into().unwrap());
        assert_eq!(common_name(&certificate([(DnType::CommonName, wide)])), None);
        // Two of them: the second replaces a name of the same length by the identifier of common names.
        let two = certificate([(DnType::CommonName, utf8("alice")), (DnType::OrganizationName, utf8("mallory"))]);
        let organization = [0x55, 0x04, 0x0a];
        let at: Vec<usize> = (0..two.len() - 3).filter(|at| two[*at..*at + 3] == organization).collect();
        let mut twice = two.clone();
        at.iter().for_each(|at| twice[at + 2] = 0x03);
        assert!(!at.is_empty() && common_name(&two).as_deref() == Some("alice"));
        assert_eq!(common_name(&twice), None);
    }

    #[test]
    fn damaged_certificates_have_no_name_and_do_no_harm() {
        let whole = certificate([(DnType::CommonName, utf8("alice"))]);
        for length in 0..whole.len() {
            assert_eq!(common_name(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            for value in [0x00, 0x7f, 0x80, 0x81, 0x84, 0x85, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = common_name(&damaged);
            }
        }
    }
}
