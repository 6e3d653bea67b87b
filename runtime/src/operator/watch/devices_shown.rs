//! What a status shows of devices.

use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::status::DeviceView;
use sardana_protocol::words::WorkerId;

use super::screens::{holds, status, table};
use crate::operator::json;

#[test]
fn what_workers_compute_on_is_shown_where_it_is_not_processors_alone() {
    let mut mixed = status();
    let [first, second] = [0xa1, 0xb2].map(|id| WorkerId::new(id << 48));
    let on = |device: &str, worker| DeviceView {
        device: device.to_owned(),
        workers: vec![worker],
    };
    mixed.devices = vec![on("cpu", first)];
    assert!(!table(&mixed).contains("devices"));
    mixed.devices.push(on("cuda, a GPU\x1b[31m", second));
    let text = table(&mixed);
    holds(
        &text,
        &[
            "\ndevices\n",
            &format!("  cpu, 1 worker: {first}\n"),
            &format!("  cuda, a GPU [31m, 1 worker: {second}\n"),
        ],
    );
    assert_eq!(json(&mixed)["workers"][1]["device"], "cuda, a GPU\x1b[31m");
}

#[test]
fn what_workers_have_of_gpus_is_shown_for_each_with_its_gpu() {
    let mut status = status();
    assert!(!table(&status).contains("GPU memory"));
    assert!(json(&status)["workers"][0]["gpu_memory"].is_null());
    let [first, second] = [0xa1, 0xb2].map(|id| WorkerId::new(id << 48));
    let memory = |gpu: &str, sharers| {
        let memory = DeviceMemory {
            held: 3 << 29,
            peak: 5 << 29,
            needed: 1,
            total: 80 << 30,
            sharers,
            pinned: 6 << 20,
            ..DeviceMemory::default()
        };
        memory.named(gpu)
    };
    status.device_memory = vec![(first, memory("GPU-a", 2)), (second, memory("1\x1b[31m", 1))];
    holds(
        &table(&status),
        &[
            &format!(
                "\nGPU memory\n{:<17}  GPU     held      at most   of        shared by\n",
                "worker"
            ),
            &format!("{first}  GPU-a   1.50 GiB  2.50 GiB  80.0 GiB  2 workers\n"),
            &format!("{second}  1 [31m  1.50 GiB  2.50 GiB  80.0 GiB  -\n"),
        ],
    );
    let expected = serde_json::json!({
        "gpu": "GPU-a", "held": 3_u64 << 29, "peak": 5_u64 << 29, "needed": 1, "total": 80_u64 << 30, "workers": 2, "pinned": 6 << 20,
    });
    assert_eq!(json(&status)["workers"][0]["gpu_memory"], expected);
}
