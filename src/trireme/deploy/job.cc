#include "trireme/deploy/job.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/deploy/command_profiler.h"
#include "trireme/deploy/sky.h"
#include "trireme/deploy/training_run.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

// z with P(Z <= z) = p, by bisection: called once.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

Goal goal_of(const JobOptions& o, const std::string& name) {
  const auto need = [&](const std::optional<double>& limit, const char* key) {
    if (!limit) fail(ErrorCode::input, name, ": goal.scenario = \"", o.goal.scenario, "\" needs ", key);
  };
  if (o.goal.scenario == "deadline") need(o.goal.deadline_hours, "goal.deadline_hours");
  if (o.goal.scenario == "budget") need(o.goal.budget_usd, "goal.budget_usd");
  return {.minimise = o.goal.scenario == "deadline" ? Goal::Minimise::money : Goal::Minimise::time,
          .deadline_hours = o.goal.deadline_hours,
          .budget_usd = o.goal.budget_usd,
          .margin = o.goal.margin};
}

std::vector<int64_t> counts_of(const JobOptions& o, const std::string& name) {
  std::vector<int64_t> counts;
  for (const double n : o.space.nodes) {
    if (n < 1 || n != std::floor(n) || n > 1e6)
      fail(ErrorCode::input, name, ": space.nodes has ", n, ": counts are whole numbers from 1");
    counts.push_back(static_cast<int64_t>(n));
  }
  return counts;
}

SpaceRules rules_of(const JobOptions& o, const std::string& name) {
  SpaceRules rules;
  rules.nodes = counts_of(o, name);
  try {
    rules.probe_minutes = CountExpression(o.probe.minutes);
  } catch (const Error& error) {
    fail(ErrorCode::input, name, ": probe.minutes = ", error.what());
  }
  rules.spot = o.space.spot == "off" ? SpotUse::off : o.space.spot == "on" ? SpotUse::on : SpotUse::automatic;
  rules.spot_restart_hours = o.space.restart_minutes / 60;
  return rules;
}

void check_trireme(const JobOptions& o, const SearchSpace& space, const std::string& name) {
  if (o.probe.config.empty())
    fail(ErrorCode::input, name,
         ": probe.kind = \"trireme\" needs probe.config, a CONFIG.toml of trireme train");
  if (o.probe.global_batch < 1)
    fail(ErrorCode::input, name,
         ": probe.kind = \"trireme\" needs probe.global_batch, the samples of one step");
  if (o.search.parallel > 1)
    fail(ErrorCode::input, name, ": search.parallel = ", o.search.parallel,
         ": probes that train the job itself run one after another");
  for (const auto& c : space.candidates)
    if (o.probe.global_batch % c.deployment.nodes != 0)
      fail(ErrorCode::input, name, ": probe.global_batch = ", o.probe.global_batch, " is no multiple of ",
           c.deployment.nodes, " nodes; change space.nodes or the batch");
}

// A mistake is told before anything is paid.
void check_profiler(const JobOptions& o, const SearchSpace& space, const std::string& name) {
  const auto& kind = o.probe.kind;
  if (kind == "trireme") check_trireme(o, space, name);
  if (kind == "command" && o.probe.command.empty())
    fail(ErrorCode::input, name,
         ": probe.kind = \"command\" needs probe.command, which prints samples per second");
  if (kind == "skypilot" && o.probe.run.empty())
    fail(ErrorCode::input, name,
         ": probe.kind = \"skypilot\" needs probe.run, which prints samples per second");
  for (const auto& pair : o.probe.environment)
    if (pair.find('=') == std::string::npos || pair.front() == '=')
      fail(ErrorCode::input, name, ": probe.environment has \"", pair, "\": write NAME=value");
  if (kind == "replay" || kind == "function") return;
  auto texts = o.probe.sets;
  texts.push_back(o.probe.command);
  for (const auto& c : space.candidates) {
    try {
      for (const auto& text : texts) fill_command(text, {.deployment = c.deployment});
    } catch (const Error& error) {
      fail(ErrorCode::input, name, ": probe: ", error.what());
    }
  }
}

void set_predictions(const JobOptions& o, const fs::path& folder, SearchSpace& space, std::string& decides) {
  if (o.space.predicted.empty()) return;
  const auto text = read_file(folder / o.space.predicted);
  decides += text;
  const auto table = read_speeds(spec::CsvTable::parse(text, (folder / o.space.predicted).string()), {});
  for (auto& c : space.candidates) {
    const auto row = table.rows.find(c.deployment);
    if (row == table.rows.end() || row->second.samples_per_s == 0)
      fail(ErrorCode::input, o.space.predicted, ": space.predicted has no speed for ", to_text(c.deployment),
           "; predict every deployment or none");
    c.predicted_samples_per_s = row->second.samples_per_s;
  }
}

Job assemble(JobOptions options, const std::string& text, const std::string& name, const fs::path& folder) {
  Job job{.options = std::move(options), .name = fs::path(name).stem().string(), .folder = folder};
  const auto& o = job.options;
  if (!(o.samples > 0)) fail(ErrorCode::input, name, ": job.samples is missing; give the samples to train");
  if (o.space.offers.empty())
    fail(ErrorCode::input, name, ": space.offers is missing; give a CSV of types and prices");
  job.goal = goal_of(o, name);
  auto rules = rules_of(o, name);
  const auto offers_path = (folder / o.space.offers).string();
  std::string decides = text;
  const auto offers_text = read_file(offers_path);
  decides += offers_text;
  const auto offers_csv = spec::CsvTable::parse(offers_text, offers_path);
  const spec::OffersFilter all{.instances = {}, .region = o.space.region, .max_nodes = o.space.max_nodes};
  auto filter = all;
  filter.instances = o.space.instances;
  auto offers = spec::offers_from(offers_csv, filter);
  if (o.probe.kind == "replay") {
    if (o.probe.table.empty())
      fail(ErrorCode::input, name, ": probe.kind = \"replay\" needs probe.table, a CSV of measured speeds");
    const auto table_path = (folder / o.probe.table).string();
    const auto table_text = read_file(table_path);
    decides += table_text;
    job.table =
        read_speeds(spec::CsvTable::parse(table_text, table_path), spec::offers_from(offers_csv, all));
    rules.only.emplace();
    for (const auto& [deployment, row] : job.table->rows) rules.only->push_back(deployment);
  }
  if (!o.space.deployments.empty()) {
    const auto listed = spec::CsvTable::read(folder / o.space.deployments);
    const size_t instance = listed.column("instance"), nodes = listed.column("nodes");
    rules.only.emplace();
    for (size_t row = 0; row < listed.rows(); ++row) {
      rules.only->push_back({listed.text(row, instance), listed.whole_number(row, nodes)});
      decides += to_text(rules.only->back());
    }
  }
  job.space = make_space(std::move(offers), rules);
  check_profiler(o, job.space, name);
  set_predictions(o, folder, job.space, decides);
  std::ostringstream digest;
  digest << std::hex << std::setw(16) << std::setfill('0') << content_hash(decides);
  job.digest = digest.str();
  return job;
}

}  // namespace

void JobOptions::list(OptionList& list) {
  list.section("job", "what is trained", [&](OptionList& l) {
    l.add("samples", samples, "samples that the whole training processes").above(0);
  });
  list.section("goal", "what counts; a limit that is given holds in every scenario", [&](OptionList& l) {
    l.add("scenario", goal.scenario, "fastest and budget minimise time, deadline minimises money")
        .one_of({"fastest", "deadline", "budget"});
    l.add("deadline_hours", goal.deadline_hours, "probes and training together, hours").above(0);
    l.add("budget_usd", goal.budget_usd, "probes and training together, USD").above(0);
    l.add("margin", goal.margin, "share of each limit that is kept in hand").at_least(0).at_most(0.9);
  });
  list.section("space", "the deployments to choose among", [&](OptionList& l) {
    l.add("offers", space.offers, "CSV of types and prices, own layout or a SkyPilot catalogue");
    l.add("nodes", space.nodes, "node counts; empty: 1, 2, 4, … and max_nodes, or those of the replay table");
    l.add("deployments", space.deployments,
          "CSV with instance,nodes: only these exist; empty: all (replay: its table)");
    l.add("instances", space.instances, "types to take from the offers; empty: all");
    l.add("region", space.region, "region to take from a catalogue; empty: the cheapest of all");
    l.add("max_nodes", space.max_nodes, "largest count for a catalogue's types").at_least(1);
    l.add("spot", space.spot, "spot machines: never, always, or where they pay")
        .one_of({"off", "on", "auto"});
    l.add("restart_minutes", space.restart_minutes, "lost by each interruption of a spot deployment")
        .at_least(0);
    l.add("predicted", space.predicted, "CSV of predicted speeds, as a prior: instance,nodes,samples_per_s");
  });
  list.section("probe", "how a deployment's speed is measured", [&](OptionList& l) {
    l.add("kind", probe.kind, "profiler; function: one of Python, given to trireme.search")
        .one_of({"replay", "command", "trireme", "skypilot", "function"});
    l.add("table", probe.table, "replay: CSV of measured speeds: instance,nodes,samples_per_s[,relative_sd]");
    l.add("command", probe.command,
          "command: shell command that prints speeds; {instance} {nodes} {minutes} {usd_per_hour} {spot}");
    l.add("config", probe.config, "trireme: CONFIG.toml of the training; a probe trains its next steps");
    l.add("sets", probe.sets, "trireme: --set of the training, e.g. \"transport.rate_limit={instance}\"");
    l.add("global_batch", probe.global_batch, "trireme: samples per step over all ranks, nodes divide it")
        .at_least(0);
    l.add("program", probe.program, "trireme: the program to call").local();
    l.add("run", probe.run,
          "skypilot: shell lines that train and print speeds; setup, workdir, environment likewise");
    l.add("setup", probe.setup, "skypilot: shell lines before");
    l.add("workdir", probe.workdir, "skypilot: folder to copy to the machines");
    l.add("environment", probe.environment, "skypilot: NAME=value");
    l.add("cloud", probe.cloud, "skypilot: empty: it chooses");
    l.add("region", probe.region, "skypilot: empty: it chooses");
    l.add("minutes", probe.minutes, "planned length over n nodes: + - * / ( ) floor ceil min max log2");
    l.add("attempts", probe.attempts, "probes of one deployment that may fail before it is given up")
        .at_least(1);
    l.add("precision", probe.precision, "not replay: a speed is settled when its 95 % bounds are this near")
        .above(0);
    l.add("longest", probe.longest, "not replay: an unstable probe ends at this multiple of its minutes")
        .at_least(1);
    l.add("early_end", probe.early_end, "not replay: end a probe once its bounds settle the comparison");
    l.add("grace_seconds", probe.grace_seconds,
          "not replay: for a stopped probe to clean up, then it is killed")
        .at_least(0);
  });
  list.section("search", "which deployments are probed", [&](OptionList& l) {
    l.add("method", search.method, "search method; oracle knows the replay table")
        .one_of({"heterbo", "bo", "cherrypick", "random", "exhaustive", "ernest", "oracle"});
    l.add("seed", search.seed, "of random choices").at_least(0);
    l.add("parallel", search.parallel, "heterbo: probes side by side, where the limits allow").at_least(1);
    l.add("max_probes", search.max_probes, "0: no such limit (random: 8)").at_least(0);
    l.add("prune", search.prune, "heterbo: counts past a type's peak").one_of({"off", "soft", "hard"});
    l.add("tolerance", search.tolerance, "heterbo: a fall in speed below this share is noise")
        .at_least(0)
        .at_most(1);
    l.add("alpha", search.alpha, "heterbo: net expected saving per cost^alpha").at_least(0).at_most(2);
    l.add("confidence", search.confidence, "heterbo: of the speed's upper bound").above(0.5).at_most(0.9999);
  });
}

SearchSetup Job::setup() const {
  const auto& m = options.search.method;
  return {.space = &space,
          .goal = goal,
          .samples = options.samples,
          .attempts = options.probe.attempts,
          .policy = policy_of(*this),
          .conclusion = m == "heterbo" ? Conclusion::within_what_is_left : Conclusion::within_the_limit};
}

Job job_from(std::string_view toml, const std::string& name, const fs::path& folder,
             const std::vector<std::string>& sets) {
  JobOptions options;
  OptionList list;
  options.list(list);
  list.read_toml_text(toml, name);
  for (const auto& assignment : sets) list.set(assignment);
  return assemble(options, list.digest_text(), name, folder);
}

Job read_job(const fs::path& path, const std::vector<std::string>& sets) {
  return job_from(read_file(path), path.string(), path.parent_path(), sets);
}

std::unique_ptr<Profiler> profiler_of(const Job& job, Processes& processes, const Clock& clock) {
  const auto& p = job.options.probe;
  if (p.kind == "function")
    fail(ErrorCode::usage, "probe.kind = \"function\" is for trireme.search(…, probe=function) in Python");
  if (p.kind == "replay") return std::make_unique<ReplayProfiler>(*job.table);
  const WatchRules rules{.precision = p.precision,
                         .longest = p.longest,
                         .grace_seconds = p.grace_seconds,
                         .early_end = p.early_end};
  if (p.kind == "trireme")
    return std::make_unique<TrainingProfiler>(TrainingOptions{.program = p.program,
                                                              .config = job.folder / p.config,
                                                              .runs = runs_folder(job),
                                                              .sets = p.sets,
                                                              .global_batch = p.global_batch,
                                                              .samples = job.options.samples},
                                              rules, processes, clock);
  if (p.kind == "skypilot")
    return std::make_unique<SkyProfiler>(SkyTask{p.cloud, p.region, p.workdir, p.setup, p.run, p.environment},
                                         runs_folder(job), job.digest.substr(0, 8), rules, processes, clock);
  return std::make_unique<CommandProfiler>(p.command, rules, processes, clock);
}

fs::path runs_folder(const Job& job) {
  return job.folder / (job.name + ".runs");
}

Policy policy_of(const Job& job) {
  const auto& s = job.options.search;
  const auto seed = static_cast<uint64_t>(s.seed);
  if (s.method == "random") return make_random(seed, s.max_probes > 0 ? s.max_probes : 8);
  if (s.method == "exhaustive") return make_exhaustive();
  if (s.method == "ernest") return make_ernest();
  if (s.method == "bo" || s.method == "cherrypick") {
    BayesOptions options;
    options.seed = seed;
    options.max_probes = s.max_probes;
    options.weigh_limits = s.method == "cherrypick";
    return make_bayes(options);
  }
  HeterboOptions options;
  options.prune = s.prune == "off" ? Prune::off : s.prune == "soft" ? Prune::soft : Prune::hard;
  options.tolerance = s.tolerance;
  options.alpha = s.alpha;
  options.confidence_z = normal_quantile(s.confidence);
  options.parallel = s.parallel;
  options.max_probes = s.max_probes;
  return make_heterbo(options);
}

}  // namespace trireme::deploy
