//! The client of an object store: its address, credentials, limits of time and of attempts.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::masking::secrets_of_environment;
use super::shared_credentials;
use crate::remote::address::{Bucket, Provider};

/// Longest time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time without a byte of an answer. A part of an upload is sent within it.
const SILENCE: Duration = Duration::from_secs(120);
/// Longest time of one request.
const REQUEST: Duration = Duration::from_secs(1800);
/// A failed request is repeated so often, within this time.
const ATTEMPTS: usize = 5;
const ATTEMPTS_FOR: Duration = Duration::from_secs(90);

/// An object store that takes long objects in parts.
pub(super) trait PartStore: ObjectStore + MultipartStore {}
impl<T: ObjectStore + MultipartStore> PartStore for T {}

pub(super) struct Client {
    pub(super) store: Arc<dyn PartStore>,
    /// Values that no message may repeat.
    pub(super) secrets: Vec<String>,
}

/// Makes a client. Nothing is sent yet.
///
/// # Errors
/// The reason, as the client's author words it. It may hold a secret.
pub(super) fn connect(bucket: &Bucket) -> Result<Client, String> {
    let mut secrets = secrets_of_environment();
    let words = |error: object_store::Error| error.to_string();
    let store: Arc<dyn PartStore> = match bucket.provider {
        Provider::S3 => Arc::new(s3(bucket, &mut secrets)?.build().map_err(words)?),
        Provider::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(&bucket.url);
            let is_plain = is_without_tls(builder.get_config_value(&GoogleConfigKey::BaseUrl));
            let options = options().with_allow_http(is_plain);
            let builder = builder.with_client_options(options).with_retry(retry());
            Arc::new(builder.build().map_err(words)?)
        }
        Provider::Azure => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_url(&bucket.url)
                .with_client_options(options())
                .with_retry(retry())
                .build()
                .map_err(words)?,
        ),
    };
    Ok(Client { store, secrets })
}

/// The parameters of the URL come first, then the environment, then the files of the AWS tools.
fn s3(bucket: &Bucket, secrets: &mut Vec<String>) -> Result<AmazonS3Builder, String> {
    let mut builder = AmazonS3Builder::from_env().with_url(&bucket.url);
    let profile = bucket.parameter("profile");
    let pairs = shared_credentials::profile(profile)?;
    // A key of the environment with a secret of the file would be nobody's.
    let has_own_key = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_some();
    let takes_key = profile.is_some() || !has_own_key;
    for (name, value) in pairs {
        let Ok(key) = name.parse::<AmazonS3ConfigKey>() else { continue };
        let is_credential = name.starts_with("aws_");
        if name != "aws_access_key_id" && is_credential {
            secrets.push(value.clone());
        }
        let is_free = builder.get_config_value(&key).is_none();
        if (is_credential && takes_key) || (!is_credential && (is_free || profile.is_some())) {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = bucket.parameter("endpoint") {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = bucket.parameter("region") {
        builder = builder.with_region(region);
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
    let endpoint = endpoint.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    Ok(builder
        .with_client_options(options().with_allow_http(is_without_tls(endpoint)))
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        .with_retry(retry()))
}

/// Whether an address of a server is without TLS: whoever names one so means it.
fn is_without_tls(endpoint: Option<String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

fn options() -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(SILENCE)
        .with_timeout(REQUEST)
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: ATTEMPTS,
        retry_timeout: ATTEMPTS_FOR,
    }
}
