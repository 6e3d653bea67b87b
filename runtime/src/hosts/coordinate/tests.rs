//! What a coordinator may be told, and what it refuses.

use super::*;

fn config(listen: &str, advertise: Option<&str>) -> CoordinateConfig {
    CoordinateConfig {
        saves: None,
        checkpoint_dir: None,
        mirror: None,
        listen: listen.parse().unwrap(),
        advertise: advertise.map(|address| address.parse().unwrap()),
        standbys: Vec::new(),
        state_dir: PathBuf::new(),
        min: 1,
        max: 8,
        balance: Balance::default(),
        expected: 1,
        succession: Succession::Resume,
    }
}

#[test]
fn every_address_cannot_be_dialled() {
    for listen in ["0.0.0.0:1", "[::]:1"] {
        let error = check(&config(listen, None)).unwrap_err().to_string();
        assert!(error.contains("--advertise"), "{error}");
        check(&config(listen, Some("10.0.0.1:1"))).unwrap();
        assert!(check(&config(listen, Some("0.0.0.0:1"))).is_err());
    }
    check(&config("127.0.0.1:0", None)).unwrap();
}

#[test]
fn standbys_can_be_dialled_and_are_few() {
    let standbys = |addresses: &[&str]| CoordinateConfig {
        standbys: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..config("127.0.0.1:0", None)
    };
    check(&standbys(&["10.0.0.1:7"; MAX_WHEREABOUTS - 1])).unwrap();
    let error = check(&standbys(&["10.0.0.1:7"; MAX_WHEREABOUTS])).unwrap_err();
    assert!(matches!(error, HostingError::TooManyStandbys(_)), "{error}");
    for nowhere in ["0.0.0.0:7", "10.0.0.1:0"] {
        let error = check(&standbys(&[nowhere])).unwrap_err();
        assert!(matches!(error, HostingError::UndialableStandby(_)), "{error}");
    }
}

#[tokio::test]
async fn nothing_is_taken_over_without_the_old_authority() {
    let place = tempfile::tempdir().unwrap();
    let error = coordinate(CoordinateConfig {
        state_dir: place.path().join("new"),
        succession: Succession::TakeOver,
        ..config("127.0.0.1:0", None)
    });
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("authority.json"), "{error}");
}
