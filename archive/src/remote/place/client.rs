//! The client of an object store: its address and its credentials.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::{CredentialProvider, ObjectStore};

use super::connection::{Connector, Patience};
use super::masking::secrets_of_environment;
use super::shared_credentials;
use crate::remote::address::{Bucket, Provider};
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// The region of S3 where none is named, as the client has it.
const USUAL_REGION: &str = "us-east-1";
/// The file of `gcloud auth application-default login`, in the home directory.
const USUAL_GOOGLE_FILE: &str = ".config/gcloud/application_default_credentials.json";

/// An object store that takes long objects in parts.
pub(super) trait PartStore: ObjectStore + MultipartStore {}
impl<T: ObjectStore + MultipartStore> PartStore for T {}

/// An answer that comes later.
type Later = Pin<Box<dyn Future<Output = Result<(), object_store::Error>> + Send>>;
/// Fetches the credentials, such as those of the machine's role.
type Credentials = Box<dyn Fn() -> Later + Send + Sync>;

pub(super) struct Client {
    pub(super) store: Arc<dyn PartStore>,
    pub(super) patience: Patience,
    /// Fetches them, or says why there are none. `None` for requests without a signature.
    pub(super) credentials: Option<Credentials>,
    /// Whether no setting names credentials, so that only the machine's role can have some.
    pub(super) has_no_settings: bool,
    /// The region, of S3.
    pub(super) region: String,
    /// Values that no message may repeat.
    pub(super) secrets: Vec<String>,
}

/// Makes a client. Nothing is sent yet.
///
/// # Errors
/// The reason. It may hold a secret.
pub(super) fn connect(bucket: &Bucket) -> Result<Client, String> {
    let patience = Patience::of_environment()?;
    match bucket.provider {
        Provider::S3 => s3(bucket, patience),
        Provider::Google => google(bucket, patience),
        Provider::Azure => azure(bucket, patience),
    }
}

/// The words of a client's error, without the name of the client.
pub(super) fn words(error: &object_store::Error) -> String {
    match error {
        object_store::Error::Generic { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

fn credentials<T: Send + Sync + 'static>(
    provider: &Arc<dyn CredentialProvider<Credential = T>>,
    signs: bool,
) -> Option<Credentials> {
    let provider = Arc::clone(provider);
    let fetch = move || -> Later {
        let provider = Arc::clone(&provider);
        Box::pin(async move { provider.get_credential().await.map(drop) })
    };
    signs.then(|| Box::new(fetch) as Credentials)
}

/// Whether a setting is there, and says so.
fn is_on(setting: Option<String>) -> bool {
    setting.is_some_and(|value| value == "true")
}

/// The parameters of the URL come first, then the environment, then the files of the AWS tools.
fn s3(bucket: &Bucket, patience: Patience) -> Result<Client, String> {
    use AmazonS3ConfigKey as Setting;
    let mut secrets = secrets_of_environment();
    let mut builder = AmazonS3Builder::from_env().with_url(&bucket.url);
    let profile = bucket.parameter("profile");
    let pairs = shared_credentials::profile(profile)?;
    // A key of the environment with a secret of the file would be of no user.
    let has_own_key = builder.get_config_value(&Setting::AccessKeyId).is_some();
    let takes_key = profile.is_some() || !has_own_key;
    for (name, value) in pairs {
        let Ok(key) = name.parse::<Setting>() else { continue };
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
    let has = |setting: Setting| builder.get_config_value(&setting).is_some();
    let has_key = match (has(Setting::AccessKeyId), has(Setting::SecretAccessKey)) {
        (true, false) => {
            return Err("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not".to_owned());
        }
        (false, true) => {
            return Err("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not".to_owned());
        }
        (key, _) => key,
    };
    let others = [
        Setting::WebIdentityTokenFile,
        Setting::ContainerCredentialsRelativeUri,
        Setting::ContainerCredentialsFullUri,
    ];
    let has_no_settings = !has_key && !others.into_iter().any(has);
    let signs = !is_on(builder.get_config_value(&Setting::SkipSignature));
    let region = builder.get_config_value(&Setting::Region);
    let region = region.unwrap_or_else(|| USUAL_REGION.to_owned());
    let endpoint = builder.get_config_value(&Setting::S3Endpoint);
    let endpoint = endpoint.or_else(|| builder.get_config_value(&Setting::Endpoint));
    let options = patience.options().with_allow_http(is_without_tls(endpoint));
    let store = builder
        .with_client_options(options)
        .with_http_connector(Connector(patience))
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        .with_retry(patience.retry())
        .build()
        .map_err(|error| words(&error))?;
    let credentials = credentials(store.credentials(), signs);
    let store = Arc::new(store);
    Ok(Client { store, patience, credentials, has_no_settings, region, secrets })
}

fn google(bucket: &Bucket, patience: Patience) -> Result<Client, String> {
    use GoogleConfigKey as Setting;
    let builder = GoogleCloudStorageBuilder::from_env().with_url(&bucket.url);
    let setting = |key: Setting| builder.get_config_value(&key);
    let named = [
        ("GOOGLE_SERVICE_ACCOUNT", setting(Setting::ServiceAccount)),
        ("GOOGLE_APPLICATION_CREDENTIALS", setting(Setting::ApplicationCredentials)),
    ];
    for (variable, path) in &named {
        let Some(path) = path else { continue };
        if let Err(error) = sys::real_path(Path::new(path)) {
            let path = Shown::bytes(path.as_bytes());
            return Err(match error.is_gone() {
                true => format!("the file {path} of {variable} does not exist"),
                false => format!("the file {path} of {variable} cannot be read: {error}"),
            });
        }
    }
    let known = [Setting::ServiceAccountKey, Setting::BearerToken];
    let has_key = known.into_iter().any(|key| setting(key).is_some());
    let usual = std::env::home_dir().map(|home| home.join(USUAL_GOOGLE_FILE));
    let has_usual = usual.is_some_and(|file| sys::real_path(&file).is_ok());
    let has_no_settings = !has_key && !has_usual && named.iter().all(|(_, path)| path.is_none());
    let signs = !is_on(setting(Setting::SkipSignature));
    let options = patience.options().with_allow_http(is_without_tls(setting(Setting::BaseUrl)));
    let store = builder
        .with_client_options(options)
        .with_http_connector(Connector(patience))
        .with_retry(patience.retry())
        .build()
        .map_err(|error| words(&error))?;
    let credentials = credentials(store.credentials(), signs);
    let (store, region) = (Arc::new(store), String::new());
    let secrets = secrets_of_environment();
    Ok(Client { store, patience, credentials, has_no_settings, region, secrets })
}

fn azure(bucket: &Bucket, patience: Patience) -> Result<Client, String> {
    use AzureConfigKey as Setting;
    let builder = MicrosoftAzureBuilder::from_env().with_url(&bucket.url);
    let has = |setting: Setting| builder.get_config_value(&setting).is_some();
    let is_emulator = is_on(builder.get_config_value(&Setting::UseEmulator));
    // In these addresses the account is a part of the host.
    let names_account = bucket.url.contains(".core.windows.net");
    if !is_emulator && !names_account && !has(Setting::AccountName) {
        return Err("no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME".to_owned());
    }
    let known = [
        Setting::AccessKey,
        Setting::SasKey,
        Setting::Token,
        Setting::ClientId,
        Setting::FederatedTokenFile,
    ];
    let asks_cli = is_on(builder.get_config_value(&Setting::UseAzureCli));
    let has_no_settings = !is_emulator && !asks_cli && !known.into_iter().any(has);
    let signs = !is_on(builder.get_config_value(&Setting::SkipSignature));
    let store = builder
        .with_client_options(patience.options())
        .with_http_connector(Connector(patience))
        .with_retry(patience.retry())
        .build()
        .map_err(|error| words(&error))?;
    let credentials = credentials(store.credentials(), signs);
    let (store, region) = (Arc::new(store), String::new());
    let secrets = secrets_of_environment();
    Ok(Client { store, patience, credentials, has_no_settings, region, secrets })
}

/// Whether an address of a server is without TLS: whoever names one so means it.
fn is_without_tls(endpoint: Option<String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}
