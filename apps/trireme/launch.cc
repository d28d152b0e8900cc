#include "launch.h"

#include <algorithm>
#include <charconv>
#include <climits>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::app {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kOneProcess = "one process";

int parse_variable(const char* name, const std::string& text, int minimum, int maximum) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < minimum || value > maximum) {
    fail(ErrorCode::usage, name, "='", text, "' in the environment: must be a whole number from ", minimum,
         " to ", maximum);
  }
  return value;
}

// The variable `name`, which must be set where `with` is; `mend` says what to do about it.
int required_number(const Lookup& lookup, const char* name, const char* with, int minimum, int maximum,
                    const char* mend) {
  if (const auto value = lookup(name)) return parse_variable(name, *value, minimum, maximum);
  fail(ErrorCode::usage, name, " is not set, but ", with, " is: ", mend);
}

int number_or(const Lookup& lookup, const char* name, int otherwise, int minimum, int maximum) {
  const auto value = lookup(name);
  return value ? parse_variable(name, *value, minimum, maximum) : otherwise;
}

bool names_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// A port for a job whose launcher names none, outside the range from which systems take ephemeral ones.
int port_of_job(std::string_view job) {
  return 20000 + static_cast<int>(hash_text(job) % 10000);
}

// Where rank 0 is met: MASTER_ADDR and MASTER_PORT, else `host` (empty: the launcher does not tell) and a
// port that follows from the job.
void set_meeting_place(LaunchPlan& plan, const Lookup& lookup, std::string host, const std::string& job) {
  if (plan.world == 1 && plan.start_ranks == 0) return;
  if (plan.local_world == plan.world) host = kLoopback;
  plan.host = lookup("MASTER_ADDR").value_or(host);
  if (plan.host.empty()) {
    fail(ErrorCode::usage, plan.launcher,
         " starts ranks on several machines and does not tell where rank 0 is: ",
         "give all ranks MASTER_ADDR (rank 0's host) and MASTER_PORT");
  }
  plan.port = number_or(lookup, "MASTER_PORT", port_of_job(job), 1, 65535);
}

// --- one process a rank

constexpr const char* kPlainMend =
    "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT together, or none of them";

std::optional<LaunchPlan> plain_variables(const Lookup& lookup, const LaunchRequest&) {
  if (!lookup("RANK") && !lookup("WORLD_SIZE")) return {};
  const char* present = lookup("RANK") ? "RANK" : "WORLD_SIZE";
  LaunchPlan plan;
  plan.world = required_number(lookup, "WORLD_SIZE", present, 1, INT_MAX, kPlainMend);
  plan.rank = required_number(lookup, "RANK", present, 0, plan.world - 1, kPlainMend);
  const auto own = lookup(kLocalLauncher), run_id = lookup("TORCHELASTIC_RUN_ID");
  plan.prefixed_output = own.has_value();
  plan.launcher = own ? *own : run_id ? "torchrun" : "RANK and WORLD_SIZE";
  const char* count = own ? kRestartCount : "TORCHELASTIC_RESTART_COUNT";
  plan.restarts = number_or(lookup, count, 0, 0, INT_MAX);
  plan.attempt = cat(run_id.value_or(""), "/", plan.restarts);
  if (plan.world == 1) return plan;

  const auto host = lookup("MASTER_ADDR");
  if (!host) fail(ErrorCode::usage, "MASTER_ADDR is not set, but ", present, " is: ", kPlainMend);
  plan.host = *host;
  plan.port = required_number(lookup, "MASTER_PORT", present, 1, 65535, kPlainMend);
  plan.agent_store = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  // A master on the loopback interface can only be reached by ranks of this machine.
  const bool all_local = names_this_machine(plan.host);
  plan.local_world = number_or(lookup, "LOCAL_WORLD_SIZE", all_local ? plan.world : 1, 1, plan.world);
  plan.local_rank = number_or(lookup, "LOCAL_RANK", plan.rank % plan.local_world, 0, plan.world - 1);
  return plan;
}

std::optional<LaunchPlan> open_mpi(const Lookup& lookup, const LaunchRequest&) {
  constexpr const char* kRank = "OMPI_COMM_WORLD_RANK";
  if (!lookup(kRank)) return {};
  constexpr const char* kMend = "start with Open MPI's mpirun";
  LaunchPlan plan;
  plan.launcher = "Open MPI";
  plan.world = required_number(lookup, "OMPI_COMM_WORLD_SIZE", kRank, 1, INT_MAX, kMend);
  plan.rank = required_number(lookup, kRank, kRank, 0, plan.world - 1, kMend);
  plan.local_world = number_or(lookup, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, 1, plan.world);
  plan.local_rank = number_or(lookup, "OMPI_COMM_WORLD_LOCAL_RANK", 0, 0, plan.local_world - 1);
  plan.attempt = lookup("PMIX_NAMESPACE").value_or("");
  set_meeting_place(plan, lookup, "", plan.attempt);
  return plan;
}

std::optional<LaunchPlan> pmi(const Lookup& lookup, const LaunchRequest& request) {
  // A Slurm step may carry these as well, but tells more by its own variables.
  if (!lookup("PMI_RANK") || lookup("SLURM_STEP_ID")) return {};
  constexpr const char* kMend = "start with MPICH's or Intel MPI's mpiexec";
  LaunchPlan plan;
  plan.launcher = "PMI";
  plan.world = required_number(lookup, "PMI_SIZE", "PMI_RANK", 1, INT_MAX, kMend);
  plan.rank = required_number(lookup, "PMI_RANK", "PMI_RANK", 0, plan.world - 1, kMend);
  plan.local_world = number_or(lookup, "MPI_LOCALNRANKS", 1, 1, plan.world);
  plan.local_rank = number_or(lookup, "MPI_LOCALRANKID", 0, 0, plan.local_world - 1);
  set_meeting_place(plan, lookup, "", cat("PMI ", request.parent_process));
  return plan;
}

// "2(x3),1" and machine 3 give 1: tasks on the machine with that number.
int tasks_on_node(const std::string& counts, int node, int world) {
  constexpr const char* kName = "SLURM_STEP_TASKS_PER_NODE";
  const char *at = counts.data(), *end = at + counts.size();
  const auto number = [&] {
    int value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value < 1 || value > world)
      fail(ErrorCode::usage, kName, "='", counts, "' in the environment: not a list of task counts");
    at = stop;
    return value;
  };
  for (int first = 0;;) {
    const int tasks = number();
    int repeat = 1;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      at += 2;
      repeat = number();
      if (at < end) ++at;  // ")"
    }
    first += repeat;
    if (node < first || at >= end) return tasks;
    ++at;  // ","
  }
}

std::optional<LaunchPlan> slurm(const Lookup& lookup, const LaunchRequest&) {
  // A batch script has a rank as well; only steps, which srun starts, are ranks of something.
  if (!lookup("SLURM_STEP_ID") || !lookup("SLURM_PROCID")) return {};
  constexpr const char* kMend = "start with srun";
  LaunchPlan plan;
  plan.launcher = "Slurm";
  plan.world = required_number(lookup, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 1, INT_MAX, kMend);
  plan.rank = required_number(lookup, "SLURM_PROCID", "SLURM_PROCID", 0, plan.world - 1, kMend);
  const int node = number_or(lookup, "SLURM_NODEID", 0, 0, INT_MAX);
  plan.local_world = tasks_on_node(lookup("SLURM_STEP_TASKS_PER_NODE").value_or("1"), node, plan.world);
  plan.local_rank = number_or(lookup, "SLURM_LOCALID", 0, 0, plan.world - 1);
  plan.restarts = number_or(lookup, "SLURM_RESTART_COUNT", 0, 0, INT_MAX);
  const auto part = [&](const char* name) { return lookup(name).value_or(""); };
  plan.attempt = cat(part("SLURM_JOB_ID"), ".", part("SLURM_STEP_ID"), "/", plan.restarts);
  set_meeting_place(plan, lookup, first_host(part("SLURM_STEP_NODELIST")), plan.attempt);
  return plan;
}

// --- one process a machine

// `local` ranks on each of `nodes` machines, this one being the `node`-th.
LaunchPlan on_each_node(std::string launcher, int node, int nodes, int local) {
  if (local > INT_MAX / nodes)
    fail(ErrorCode::usage, launcher, ": ", nodes, " x ", local, " ranks are too many");
  LaunchPlan plan;
  plan.launcher = std::move(launcher);
  plan.world = nodes * local;
  plan.rank = node * local;
  plan.local_world = local;
  // A machine's only rank needs no process beside this one.
  plan.start_ranks = local > 1 ? local : 0;
  return plan;
}

int one_per_gpu(const LaunchRequest& request) {
  if (request.nproc > 0) return request.nproc;
  return request.gpu_count != nullptr ? std::max(1, request.gpu_count()) : 1;
}

int pet_local_ranks(const Lookup& lookup, const LaunchRequest& request) {
  constexpr const char* kName = "PET_NPROC_PER_NODE";
  const std::string text = lookup(kName).value_or("auto");
  if (request.nproc > 0 || text == "auto" || text == "gpu") return one_per_gpu(request);
  return parse_variable(kName, text, 1, 1024);
}

// "2", or "2:2"; a range is for jobs that change their size while they run.
int pet_nodes(const std::string& text) {
  const auto colon = text.find(':');
  const std::string least = text.substr(0, colon);
  if (colon != std::string::npos && text.substr(colon + 1) != least) {
    fail(ErrorCode::usage, "PET_NNODES='", text,
         "' in the environment: the number of machines may not change; give one number");
  }
  return parse_variable("PET_NNODES", least, 1, INT_MAX);
}

std::optional<LaunchPlan> pet(const Lookup& lookup, const LaunchRequest& request) {
  const auto nodes_text = lookup("PET_NNODES");
  if (!nodes_text) return {};
  const int nodes = pet_nodes(*nodes_text);
  const int node = nodes == 1 ? 0
                              : required_number(lookup, "PET_NODE_RANK", "PET_NNODES", 0, nodes - 1,
                                                "it is this machine's number, from 0");
  LaunchPlan plan = on_each_node("PET", node, nodes, pet_local_ranks(lookup, request));
  plan.attempt = lookup("PET_RDZV_ID").value_or("");
  if (nodes == 1) {
    plan.host = plan.world > 1 ? kLoopback : "";
    return plan;
  }
  if (!lookup("PET_MASTER_ADDR")) {
    fail(ErrorCode::usage, "PET_MASTER_ADDR is not set, but PET_NNODES is: it is the host of machine 0");
  }
  plan.host = *lookup("PET_MASTER_ADDR");
  plan.port = number_or(lookup, "PET_MASTER_PORT", 29500, 1, 65535);
  return plan;
}

std::optional<LaunchPlan> skypilot(const Lookup& lookup, const LaunchRequest& request) {
  const auto addresses = lookup("SKYPILOT_NODE_IPS");
  if (!lookup("SKYPILOT_NODE_RANK") || !addresses) return {};
  const auto lines = 1 + std::count(addresses->begin(), addresses->end(), '\n') - (addresses->back() == '\n');
  const int nodes = number_or(lookup, "SKYPILOT_NUM_NODES", static_cast<int>(lines), 1, INT_MAX);
  const int node = parse_variable("SKYPILOT_NODE_RANK", *lookup("SKYPILOT_NODE_RANK"), 0, nodes - 1);
  const int gpus = number_or(lookup, "SKYPILOT_NUM_GPUS_PER_NODE", 0, 0, 1024);
  LaunchPlan plan =
      on_each_node("SkyPilot", node, nodes, request.nproc > 0 ? request.nproc : std::max(1, gpus));
  plan.attempt = lookup("SKYPILOT_TASK_ID").value_or("");
  if (nodes > 1) set_meeting_place(plan, lookup, addresses->substr(0, addresses->find('\n')), plan.attempt);
  if (nodes == 1 && plan.world > 1) plan.host = kLoopback;
  return plan;
}

LaunchPlan local(const LaunchRequest& request) {
  LaunchPlan plan;
  plan.launcher = request.nproc > 0 ? "--nproc" : kOneProcess;
  if (request.nproc <= 1) return plan;
  plan.world = plan.local_world = plan.start_ranks = request.nproc;
  plan.host = kLoopback;
  return plan;
}

}  // namespace

std::string first_host(const std::string& node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const size_t close = node_list.find(']', i);
    if (close == std::string::npos)
      fail(ErrorCode::usage, "SLURM_STEP_NODELIST='", node_list, "': no ] for its [");
    const size_t end = node_list.find_first_of(",-]", i);
    host += node_list.substr(i + 1, end - i - 1);
    i = close;
  }
  return host;
}

LaunchPlan resolve_launch(const Lookup& lookup, const LaunchRequest& request) {
  for (const auto& launcher : {plain_variables, open_mpi, pmi, slurm, pet, skypilot}) {
    const auto plan = launcher(lookup, request);
    if (!plan) continue;
    const bool starts_local = launcher == pet || launcher == skypilot;
    // A world of one is what an interactive step or container has; --nproc may be used inside.
    if (request.nproc > 0 && !starts_local && (plan->world > 1 || launcher == plain_variables)) {
      fail(ErrorCode::usage, "--nproc starts its own processes, but this is ", to_text(*plan), ": ",
           launcher == plain_variables ? "RANK or WORLD_SIZE is set; " : "", "use one of the two");
    }
    if (request.nproc <= 1 || starts_local) return *plan;
  }
  return local(request);
}

std::string to_text(const LaunchPlan& plan) {
  const std::string who = plan.start_ranks > 0 ? cat("ranks ", plan.rank, " to ",
                                                     plan.rank + plan.start_ranks - 1, " of ", plan.world)
                                               : cat("rank ", plan.rank, " of ", plan.world);
  if (plan.world == 1) return cat(who, " (", plan.launcher, ")");
  if (plan.port == 0) return cat(who, " (", plan.launcher, "; all on this machine)");
  return cat(who, " (", plan.launcher, "; store at ", plan.host, ":", plan.port, ")");
}

}  // namespace trireme::app
