#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/cpu_device.h"
#include "apps/named_models.h"
#include "apps/run_device.h"
#include "backends/cpu/kernels/isa.h"
#include "explain/explanation.h"
#include "options/model_options.h"
#include "train/first_run_defaults.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera explain [TOPIC...] [OPTIONS of train]

What lies behind the numbers of tessera plan; like that it allocates and runs nothing. Without a topic: memory.

memory    why a rank takes so much: state with its formula, what is live at the peak by kind, op and layer, the largest of it with
          who made it, who reads it last and which option keeps it; what other options would take, each of them planned
peak      the instruction at the peak, what runs around it, memory over the program as a chart
kernels   which kernel took which op, its share of the arithmetic, which kernels declined and why, and what was decomposed;
          and the same in short for every --cpu_isa
passes    what every pass added, removed and changed, by op and layer (the graphs: --dump_pass DIR --dump_format html)
NAME      all nodes of a scope (layers.3.attn), an op (rms_norm) or a value (%12): types, places, kernels

Examples
  tessera explain --model_name llama2_7b --train_batch_size 1
  tessera explain peak kernels --model_name llama3.1_8b --world 8 --cpu_isa amx --threads 32
  tessera explain layers.0.attn --model_type llama_v2 --num_layers 2
  tessera explain memory passes --json --model_name gpt2

Options
)";

// The device of every --cpu_isa with the job's number of threads.
class EveryIsa {
 public:
  explicit EveryIsa(const RunConfig& config) {
    for (cpu::Isa isa : cpu::kIsas) {
      RunConfig other = config;
      other.cpu_isa = name(isa);
      devices_.push_back(std::make_unique<PlannedDevice>(other));
      list_.push_back({other.cpu_isa, &devices_.back()->target(), isa <= cpu::detect_isa()});
    }
  }
  const std::vector<OtherDevice>& list() const { return list_; }

 private:
  std::vector<std::unique_ptr<PlannedDevice>> devices_;
  std::vector<OtherDevice> list_;
};

}  // namespace

int explain_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kExplain);
  if (parsed.help) return print_help(parsed, kHelp);
  const RunConfig& config = parsed.config;
  const int64_t ranks = planned_world(config) / config.tensor_parallel_degree;
  choose_for_text(parsed, {std::max<int64_t>(1, ranks), config.resume_from_checkpoint});
  take_vocabulary(parsed);
  fetch_named_configuration(parsed);
  const ModelConfig model = resolve_model(parsed);
  choose_device(parsed);
  log_messages(parsed);
  std::vector<std::string> topics = parsed.words;
  if (topics.empty()) topics.emplace_back("memory");
  const PlannedDevice device(config);
  ExplainedJob job{config, model, device.target(), {}};
  const bool is_cpu = config.device_type == "auto" || config.device_type == "cpu";
  std::optional<EveryIsa> every;
  if (is_cpu && std::ranges::find(topics, "kernels") != topics.end())
    job.others = every.emplace(config).list();
  Explanation explanation(job);
  if (config.json) {
    std::fputs(explanation.json(topics).c_str(), stdout);
    return 0;
  }
  std::string text;
  for (const std::string& topic : topics)
    text += cat(text.empty() ? "" : "\n", explanation.text(topic));
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
