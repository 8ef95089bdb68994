#include "apps/named_models.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "hub/local_cache.h"
#include "hub/remote_model.h"
#include "models/model_config.h"
#include "options/pretrained_source.h"
#include "options/remote_options.h"
#include "options/run_record.h"
#include "remote/hub_reference.h"
#include "remote/url.h"
#include "runtime/control.h"
#include "train/own_tokenizer.h"
#include "train/training_data.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

using Field = std::string RunConfig::*;

// The options that name a model or a tokenizer.
constexpr struct {
  std::string_view option;
  Field field;
  bool has_weights;  // that a run starts from
} kNames[] = {
    {"hf_pretrained_model_name_or_dir", &RunConfig::hf_pretrained_model_name_or_dir, true},
    {"pretrained_model_name", &RunConfig::pretrained_model_name, false},
    {"finetune_checkpoint_load_dir", &RunConfig::finetune_checkpoint_load_dir, true},
    {"model_config", &RunConfig::model_config, false},
    {"tokenizer", &RunConfig::tokenizer, false},
};

// What one of them names on a server. Without parts: it is in the checkpoint.
struct NamedModel {
  size_t which = 0;  // of kNames
  ModelParts parts;
  std::string name;

  bool is_in_checkpoint() const {
    return !parts.configuration && !parts.tokenizer && !parts.weights;
  }
  std::string to_text() const {
    return cat(which, parts.configuration ? "c" : "-", parts.tokenizer ? "t" : "-",
               parts.weights ? "w" : "-", name);
  }
  static NamedModel from_text(std::string_view text) {
    TESSERA_CHECK(text.size() > 4, "a named model is a line");
    return {static_cast<size_t>(text[0] - '0'),
            {text[1] == 'c', text[2] == 't', text[3] == 'w'},
            std::string(text.substr(4))};
  }
};

// The run that is gone on with, if there is one.
std::optional<RunRecord> record_of_resumed(const RunConfig& config, int attempt) {
  std::optional<RecordedRun> found;
  if (attempt > 0) found = newest_recorded_run(config.checkpoint_dir);
  if (!found) found = newest_recorded_run(config.resume_from_checkpoint);
  return found ? std::optional(found->record) : std::nullopt;
}

// Whether the run that recorded the one meant the other, which may have moved on since.
bool is_same_model(const std::string& recorded, const std::string& given) {
  if (!recorded.starts_with("hf://")) return false;
  auto now = given.starts_with("hf://") ? parse_hub_reference(given) : find_model_name(given);
  if (!now) return false;
  HubReference then = parse_hub_reference(recorded);
  return then.repository == now->repository &&
         (!is_hub_commit(now->revision) || then.revision == now->revision);
}

// What a run needs of what its options name: of its models first, then of its tokenizer.
class Needs {
 public:
  Needs(const ParsedOptions& parsed, int attempt)
      : parsed_(parsed), resumed_(record_of_resumed(parsed.config, attempt)) {}

  std::vector<NamedModel> models() const {
    std::vector<NamedModel> needed;
    if (parsed_.config.finetune && resumed_) return needed;  // all is in the checkpoint
    const std::string& weights = parsed_.config.pretrained_checkpoint_file;
    if (!weights.empty() && !is_there(weights)) {
      throw UserError(
          cat("--pretrained_checkpoint_file: there is no file or directory '", weights, "'"));
    }
    const std::string& load_dir = parsed_.config.finetune_checkpoint_load_dir;
    if (!load_dir.empty() && !is_remote_model(load_dir) && !is_there(load_dir)) {
      throw UserError(
          cat("--finetune_checkpoint_load_dir: there is no file or directory '", load_dir, "'"));
    }
    for (size_t i = 0; i < std::size(kNames); ++i) {
      const std::string& name = parsed_.config.*kNames[i].field;
      if (kNames[i].option == "tokenizer" || name.empty() || !is_remote_model(name)) continue;
      if (!kNames[i].has_weights && find_preset(name)) continue;  // its shape is known here
      ModelParts parts;
      parts.weights = kNames[i].has_weights && !resumed_;
      parts.configuration = kNames[i].option != "finetune_checkpoint_load_dir";
      parts.tokenizer = parts.configuration && kNames[i].option != "model_config" &&
                        !parsed_.is_given("tokenizer") && !has_own_tokenizer();
      if (parts.configuration || parts.weights) needed.push_back(named(i, parts));
    }
    return needed;
  }

  std::vector<NamedModel> tokenizer() const {
    const RunConfig& config = parsed_.config;
    size_t which = std::size(kNames) - 1;
    require_own_tokenizer();
    if (!is_remote_model(config.tokenizer) || is_own_tokenizer(config)) return {};
    if (has_own_tokenizer() && !parsed_.is_given("tokenizer")) return {};
    if (has_own_tokenizer() && is_recorded(which)) return {named(which, {})};
    if (!parsed_.is_given("tokenizer") && find_pretrained_tokenizer(config)) return {};
    // A finished model has the one that was named for it, not the default.
    const bool for_model = config.save_final_model && parsed_.is_given("tokenizer");
    if (!for_model && !data_need_tokenizer(config)) return {};
    return {named(which, {.tokenizer = true})};
  }

 private:
  // Pretrained weights with another tokenizer than theirs would learn another language.
  void require_own_tokenizer() const {
    const RunConfig& config = parsed_.config;
    if (resumed_ || parsed_.is_given("tokenizer") || is_own_tokenizer(config)) return;
    std::string source = config.hf_pretrained_model_name_or_dir;
    if (config.finetune && source.empty()) source = config.pretrained_checkpoint_file;
    if (config.finetune && source.empty()) source = config.finetune_checkpoint_load_dir;
    if (source.empty() || find_pretrained_tokenizer(config) || !data_need_tokenizer(config)) return;
    find_pretrained_weights(config);  // says what to do where there is no such model at all
    throw UserError(cat("there is no tokenizer with the pretrained weights of '", source,
                        "': give --tokenizer the one that they were trained with"));
  }

  bool has_own_tokenizer() const { return resumed_ && resumed_->tokenizer; }
  bool is_recorded(size_t which) const {
    return resumed_ && is_same_model(resumed_->options.*kNames[which].field,
                                     parsed_.config.*kNames[which].field);
  }

  NamedModel named(size_t which, ModelParts parts) const {
    Field field = kNames[which].field;
    return {which, parts, is_recorded(which) ? resumed_->options.*field : parsed_.config.*field};
  }

  const ParsedOptions& parsed_;
  std::optional<RunRecord> resumed_;
};

std::string fetch(const NamedModel& model, const RunConfig& config) {
  if (model.is_in_checkpoint()) return model.name;
  RemoteOptions options = remote_options(config);
  std::string path = fetch_model(model.name, model.parts, options).string();
  std::string pinned = model_name_of(path);
  TESSERA_INFO(cat("--", kNames[model.which].option, " ",
                   public_url(config.*kNames[model.which].field), ": ",
                   pinned == path ? "" : cat(pinned, " in "), path));
  return path;
}

// Calls `work` on one rank of each host, or on rank 0 alone; what it returns, or throws as a
// UserError, is that of all ranks of the host.
class HostWork {
 public:
  explicit HostWork(const JobConnection& job) : control_(job.channels.control.get()) {
    if (!control_) return;
    hosts_ = control_->exchange("hosts of the ranks", job.member->host_id);
    first_ = static_cast<size_t>(
        std::ranges::find(hosts_, hosts_[static_cast<size_t>(control_->rank())]) - hosts_.begin());
  }

  template <class Work>
  std::string once(const std::string& what, const Work& work) const {
    return run(what, 0, work);
  }
  template <class Work>
  std::string on_each_host(const std::string& what, const Work& work) const {
    return run(what, first_, work);
  }

 private:
  template <class Work>
  std::string run(const std::string& what, size_t by, const Work& work) const {
    if (!control_) return work();
    std::string result;
    while_others_wait(
        *control_, static_cast<size_t>(control_->rank()) == by, what,
        [&] {
          try {
            result = cat("r", work());
          } catch (const UserError& error) {
            result = cat("e", error.what());
          }
        },
        request_interruption);
    std::vector<std::string> all = control_->exchange(what, result);
    for (const std::string& each : all) {
      if (each.starts_with('e')) throw UserError(each.substr(1));
    }
    return all[by].substr(1);
  }

  Control* control_;
  std::vector<std::string> hosts_;
  size_t first_ = 0;  // rank of this host
};

// A name of one word is looked for where models of such a name are.
std::string with_cached_tokenizer(const std::string& name, const RunConfig& config) {
  std::error_code ignored;
  if (name == "byte" || fs::exists(name, ignored)) return name;
  const auto cached = find_cached_model(name, remote_options(config).hub.home);
  return cached ? cached->string() : name;
}

// Says of which option an error is.
template <class Work>
std::string for_option(const NamedModel& model, const RunConfig& config, const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    const auto& known = kNames[model.which];
    const RunConfig defaults;  // not a temporary: GCC 12 ends with an internal error there
    bool is_default = config.*known.field == defaults.*known.field;
    throw UserError(cat("--", known.option, " ", public_url(config.*known.field),
                        is_default ? ", the default" : "", ": ", error.what()));
  }
}

void fetch_all(ParsedOptions& parsed, const JobConnection& job, const std::string& kind,
               const std::function<std::vector<NamedModel>()>& needed) {
  HostWork ranks(job);
  std::string agreed = ranks.once(cat("names of ", kind), [&] {
    RemoteOptions options = remote_options(parsed.config);
    options.http.attempts = 5;  // nothing has been done yet that would be lost
    std::string lines;
    for (NamedModel& model : needed()) {
      if (!model.is_in_checkpoint())
        model.name = for_option(model, parsed.config,
                                [&] { return pin_model(model.name, model.parts, options); });
      lines += cat(model.to_text(), "\n");
    }
    return lines;
  });
  if (agreed.empty()) return;
  std::vector<NamedModel> models;
  for (std::string_view line : split(trim(agreed), '\n'))
    models.push_back(NamedModel::from_text(line));
  std::string paths = ranks.on_each_host(cat("fetching of ", kind), [&] {
    std::string lines;
    for (const NamedModel& model : models)
      lines +=
          cat(for_option(model, parsed.config, [&] { return fetch(model, parsed.config); }), "\n");
    return lines;
  });
  auto lines = split(trim(paths), '\n');
  TESSERA_CHECK(lines.size() == models.size(), "a path for each model");
  for (size_t i = 0; i < models.size(); ++i)
    parsed.config.*kNames[models[i].which].field = lines[i];
}

}  // namespace

void fetch_named_models(ParsedOptions& parsed, const JobConnection& job) {
  int attempt = job.member ? job.member->attempt : 0;
  fetch_all(parsed, job, "models", [&] { return Needs(parsed, attempt).models(); });
}

void fetch_named_tokenizer(ParsedOptions& parsed, const JobConnection& job) {
  int attempt = job.member ? job.member->attempt : 0;
  std::string& named = parsed.config.tokenizer;
  if (!is_remote_model(named)) named = with_cached_tokenizer(named, parsed.config);
  fetch_all(parsed, job, "tokenizers", [&] { return Needs(parsed, attempt).tokenizer(); });
}

void fetch_named_configuration(ParsedOptions& parsed) {
  RemoteOptions options = remote_options(parsed.config);
  options.http.attempts = 2;
  options.http.deadline = 20;
  for (const auto& known : kNames) {
    std::string& name = parsed.config.*known.field;
    if (known.option == "tokenizer" || known.option == "finetune_checkpoint_load_dir" ||
        name.empty() || !is_remote_model(name) || find_preset(name))
      continue;
    NamedModel model{static_cast<size_t>(&known - kNames), {.configuration = true}, name};
    name = for_option(model, parsed.config,
                      [&] { return fetch_model(name, model.parts, options).string(); });
  }
}

std::string fetch_named_tokenizer(const std::string& name, const RunConfig& config) {
  if (!is_remote_model(name)) return with_cached_tokenizer(name, config);
  return fetch_model(name, {.tokenizer = true}, remote_options(config)).string();
}

}  // namespace tessera
