"""Names and constants that several stages share."""

TOOLKITS = ("cuda12", "cuda13")
"""In order of preference where one toolkit must represent a family; the articles used the first."""

LEAST_DRIVER = {"cuda12": 525, "cuda13": 580}
"""The first series of the driver that runs what each toolkit builds."""

LEAST_CAPABILITY = 80
"""Compute capability x 10 of the oldest GPUs that kernels run on."""

LIBRARY = "library"
"""The value of the column `toolkit` in a baseline's own rows."""

RESTORE = "restore it from the repository, or record the family again with workflow/scripts/record"
"""Remedy for an incomplete recording, to end an error message."""

METRICS = {
    "gpu__time_duration.sum": "time of the launch under the profiler",
    "dram__bytes.sum": "bytes moved through DRAM",
    "dram__bytes_read.sum": "bytes read from DRAM",
    "dram__bytes.sum.per_second": "DRAM throughput",
    "lts__t_bytes.sum": "bytes requested from L2",
    "smsp__sass_inst_executed_op_global_ld.sum": "global load instructions, per warp",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": "multiply-adds, per thread",
    "smsp__inst_executed.sum": "all instructions, per warp",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "L1 requests of global loads",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "32-byte sectors of those requests; 4 per request is coalesced",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "bank conflicts of shared loads",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "bank conflicts of shared stores",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "cycles in which a scheduler issued an instruction",
    "smsp__inst_executed_pipe_fma.sum": "instructions of the FMA pipes, per warp",
    "sm__inst_executed_pipe_tensor_op_gmma.sum": "warpgroup matrix instructions (wgmma), per warp",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": "cycles in which mma.sync was executing",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "shared memory wavefronts, one cycle each",
    "sm__inst_executed_pipe_tensor_op_hmma.sum": "tensor core instructions, per warp",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "32-byte sectors that global stores touch",
    "lts__t_sector_hit_rate.pct": "L2 hit rate",
    "launch__occupancy_limit_registers": "blocks per SM that its registers allow",
    "launch__occupancy_limit_shared_mem": "blocks per SM that its shared memory allows, of all that the SM has",
    "launch__waves_per_multiprocessor": "waves: blocks of the launch over those that run at the same time",
    "sm__cycles_elapsed.max": "cycles of the launch",
}

REFERENCE = "h200"
"""The recording, under reports/recorded, that the families' findings are about."""

SNAKEMAKE = "envs/run snakemake --use-singularity --cores 1"
COMMAND = f"{SNAKEMAKE} --force results/verdicts.json"

SIZE = 4096
"""The default size of figures and tables, and of most numbers in the articles."""

REPORT_PAGES = ("index", "claims", "corrections", "gpus", "leaderboard", "method", "regimes", "reproduce", "runs")
"""The report's own pages, in ``reports/``."""

OWN_PAGE = "own.html"
"""Another one, where there are kernels of one's own."""

REPORT_FOLDERS = ("assets", "baselines", "data", "families", "gpus", "kernels")
"""The folders beside them, which hold nothing else."""


def baseline_at(baseline: str, dtype: str, n: object) -> str:
    """A baseline at a size in run.json: "<baseline> <n>" for fp32, else "<baseline> <dtype> <n>"."""
    return f"{baseline} {n}" if dtype == "fp32" else f"{baseline} {dtype} {n}"
