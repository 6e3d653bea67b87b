//! A server that speaks S3, and is not ours: `moto`, for Python. It is installed once, beside what these tests have built.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Always the same, so that the same commit gets the same answer.
const VERSION: &str = "5.2.5";

/// A download that takes longer is given up.
const INSTALLING: Duration = Duration::from_secs(300);

/// A server that has not said by then where it listens never will.
const STARTING: Duration = Duration::from_secs(60);

/// Serves on any free port, makes a bucket, and says which port.
const SCRIPT: &str = "
import boto3, sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
client = boto3.client('s3', endpoint_url=f'http://127.0.0.1:{port}', region_name='us-east-1',
                      aws_access_key_id='a', aws_secret_access_key='b')
client.create_bucket(Bucket='bucket')
print('port', port, flush=True)
sys.stdin.read()
";

/// The server; ends with this.
pub(crate) struct Moto {
    child: Child,
    pub(crate) port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    /// None, and a line that says why, where there is none.
    pub(crate) fn start() -> Option<Self> {
        match python().and_then(|python| serve(&python)) {
            Ok(moto) => Some(moto),
            Err(reason) => {
                println!("skipped: {reason}");
                None
            }
        }
    }

    /// Lets a program find the server.
    pub(crate) fn show<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let url = format!("http://127.0.0.1:{}", self.port);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("AWS_")) {
                command.env_remove(name);
            }
        }
        command
            .env("AWS_ENDPOINT_URL", url)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "somebody")
            .env("AWS_SECRET_ACCESS_KEY", "a secret")
    }
}

/// A Python that has the server, installed if it is not.
fn python() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("moto-{VERSION}"));
    let (python, done) = (folder.join("bin/python3"), folder.join("done"));
    // One test after the other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if done.exists() {
        return Ok(python);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    let venv = within(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    venv.map_err(|why| format!("python3 makes no virtual environment: {why}"))?;
    let package = format!("moto[s3]=={VERSION}");
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--quiet",
        "--no-compile",
        "--retries",
        "1",
    ]);
    // Of what the whole server needs only what S3 does.
    pip.args([&package, "flask", "flask-cors"]);
    within(&mut pip).map_err(|why| format!("pip does not install {package}: {why}"))?;
    fs::write(done, []).map_err(|error| error.to_string())?;
    Ok(python)
}

/// Runs a command to its end, but not for ever.
fn within(command: &mut Command) -> Result<(), String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let pid = child.id().to_string();
    let (ended, outcome) = channel();
    thread::spawn(move || ended.send(child.wait_with_output()));
    let Ok(output) = outcome.recv_timeout(INSTALLING) else {
        // No test waits for it any more.
        let _ = Command::new("kill").arg(pid).status();
        return Err(format!("it takes longer than {INSTALLING:?}"));
    };
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(words.lines().last().unwrap_or("it does not say why").to_owned())
}

fn serve(python: &Path) -> Result<Moto, String> {
    let mut command = Command::new(python);
    command
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let stdout = child.stdout.take();
    let mut moto = Moto { child, port: 0 };
    let (said, port) = channel();
    thread::spawn(move || {
        let lines = stdout
            .into_iter()
            .flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
        for line in lines {
            if let Some(port) = line.strip_prefix("port ") {
                // The task that waited may have given up.
                let _ = said.send(port.parse::<u16>());
            }
        }
    });
    let port = port.recv_timeout(STARTING);
    moto.port = port
        .map_err(|_| "the server does not start")?
        .map_err(|error| error.to_string())?;
    Ok(moto)
}
