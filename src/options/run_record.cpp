#include "options/run_record.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/parse_number.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"
#include "models/model_family.h"
#include "options/option_record.h"
#include "remote/source.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMaxRecordBytes = 16 << 20;

uint64_t hash_from(const Json& text) {
  auto digits = text.get<std::string>();
  const auto hash = parse_number<uint64_t>(digits, 16);
  if (digits.size() != 16 || !hash) throw UserError(cat("'", digits, "' is not a fingerprint"));
  return *hash;
}

// What has been added since the first checkpoints.
void add_later_fields(Json& json, const RunRecord& r) {
  if (r.epoch > 0) json["epoch"] = r.epoch;
  if (r.tokenizer)
    json["tokenizer"] = {{"place", r.tokenizer->place},
                         {"fingerprint", hex(r.tokenizer->fingerprint)}};
  if (r.training_text)
    json["training_text"] = {{"tokens", r.training_text->tokens},
                             {"xxh3", hex(r.training_text->hash)}};
  if (r.data_ranks) json["data_ranks"] = *r.data_ranks;
  if (r.best_validation_loss)
    json["best_validation"] = {{"loss", *r.best_validation_loss},
                               {"checkpoint", r.best_checkpoint}};
  if (r.validation_unfinished) json["validation_unfinished"] = true;
  if (!r.loss_history.empty()) json["loss_history"] = r.loss_history;
  if (r.loss_spike_rewinds > 0)
    json["loss_spikes"] = {{"rewinds", r.loss_spike_rewinds},
                           {"skipped_samples", r.skipped_samples}};
  if (!r.converted_from.empty()) json["converted_from"] = r.converted_from;
  if (r.base_model) json["base_model"] = *r.base_model;
}

void read_later_fields(const Json& json, RunRecord& r) {
  if (json.contains("epoch")) r.epoch = json.at("epoch").get<int64_t>();
  if (json.contains("tokenizer")) {
    const Json& t = json.at("tokenizer");
    r.tokenizer = {t.at("place").get<std::string>(), hash_from(t.at("fingerprint"))};
    const std::string& place = r.tokenizer->place;
    if (place != "byte" && place != kTokenizerFolder && !is_attached_name(place))
      throw UserError(cat("its tokenizer cannot be '", place, "'"));
  }
  if (json.contains("training_text")) {
    const Json& t = json.at("training_text");
    r.training_text = {t.at("tokens").get<int64_t>(), hash_from(t.at("xxh3"))};
  }
  if (json.contains("data_ranks")) r.data_ranks = json.at("data_ranks").get<int64_t>();
  if (json.contains("best_validation")) {
    const Json& best = json.at("best_validation");
    r.best_validation_loss = best.at("loss").get<double>();
    r.best_checkpoint = best.at("checkpoint").get<std::string>();
  }
  r.validation_unfinished =
      json.contains("validation_unfinished") && json.at("validation_unfinished").get<bool>();
  if (json.contains("loss_history"))
    r.loss_history = json.at("loss_history").get<std::deque<double>>();
  if (json.contains("loss_spikes")) {
    const Json& spikes = json.at("loss_spikes");
    r.loss_spike_rewinds = spikes.at("rewinds").get<int64_t>();
    r.skipped_samples =
        spikes.at("skipped_samples").get<std::vector<std::pair<int64_t, int64_t>>>();
  }
  if (json.contains("converted_from"))
    r.converted_from = json.at("converted_from").get<std::string>();
  if (json.contains("base_model")) r.base_model = json.at("base_model").get<std::string>();
}

}  // namespace

std::string to_json(const RunRecord& r) {
  Json schedule{
      {"start_lr", r.schedule.start_lr},       {"min_lr", r.schedule.min_lr},
      {"warmup_iter", r.schedule.warmup_iter}, {"num_iters", r.schedule.num_iters},
      {"end_iter", r.schedule.end_iter},       {"decay_style", name(r.schedule.decay_style)}};
  Json json{{"step", r.step},
            {"position", r.position},
            {"tokens_seen", r.tokens_seen},
            {"skipped_in_a_row", r.skipped_in_a_row},
            {"parameter_count", r.parameter_count},
            {"last_good_checkpoint", r.last_good_checkpoint},
            {"mesh", r.mesh},
            {"schedule", schedule},
            {"model", Json::parse(model_config_json(r.model))},
            {"options", Json::parse(run_config_json(r.options))}};
  if (r.loss_scale)
    json["loss_scale"] = {{"scale", r.loss_scale->scale}, {"good_steps", r.loss_scale->good_steps}};
  add_later_fields(json, r);
  // A path may hold bytes that are no UTF-8; the record stays valid JSON.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunRecord run_record_from_json(std::string_view text, std::string_view where) {
  try {
    if (text.size() > kMaxRecordBytes) throw UserError("larger than 16 MiB");
    const auto json = parse_shallow_json<Json>(text, kRunName);
    if (json.is_discarded()) throw UserError("not JSON");
    RunRecord r;
    r.step = json.at("step").get<int64_t>();
    r.position = json.at("position").get<int64_t>();
    r.tokens_seen = json.at("tokens_seen").get<int64_t>();
    r.skipped_in_a_row = json.at("skipped_in_a_row").get<int64_t>();
    r.parameter_count = json.at("parameter_count").get<int64_t>();
    if (json.contains("loss_scale")) {
      const Json& scale = json.at("loss_scale");
      r.loss_scale = {scale.at("scale").get<float>(), scale.at("good_steps").get<int64_t>()};
      if (!(r.loss_scale->scale > 0)) throw UserError("loss_scale is not above 0");
    }
    r.last_good_checkpoint = json.at("last_good_checkpoint").get<std::string>();
    r.mesh = json.at("mesh").get<std::string>();
    const Json& s = json.at("schedule");
    r.schedule = {.start_lr = s.at("start_lr").get<double>(),
                  .min_lr = s.at("min_lr").get<double>(),
                  .warmup_iter = s.at("warmup_iter").get<double>(),
                  .num_iters = s.at("num_iters").get<int64_t>(),
                  .end_iter = s.at("end_iter").get<int64_t>(),
                  .decay_style = decay_style_from_name(s.at("decay_style").get<std::string>())};
    r.model = model_config_from_json(json.at("model").dump());
    // Earlier versions recorded addresses whole.
    r.options = without_secrets(run_config_from_json(json.at("options").dump()));
    r.schedule.plateau = r.options.plateau;
    r.schedule.gamma = r.options.step_lr_gamma;
    read_later_fields(json, r);
    if (r.step < 0 || r.position < 0 || r.epoch < 0 || r.tokens_seen < 0)
      throw UserError("a counter is negative");
    return r;
  } catch (const nlohmann::json::exception& error) {
    throw UserError(cat("'", where, "' is not the record of a run: ", error.what()));
  } catch (const UserError& error) {
    throw UserError(cat("'", where, "' is not the record of a run: ", error.what()));
  }
}

std::string shown_record(std::string_view text, std::string_view where) {
  const RunRecord record = run_record_from_json(text, where);
  const Json options = Json::parse(run_config_json(record.options));
  Json json = Json::parse(text);
  for (const auto& [name, value] : json.at("options").items())
    if (options.contains(name)) value = options.at(name);
  return json.dump(1);
}

std::optional<RecordedRun> newest_recorded_run(std::span<const std::string> places) {
  std::set<std::filesystem::path> unreadable;
  std::optional<UserError> first;
  auto wanted = [&](const std::filesystem::path& path) { return !unreadable.contains(path); };
  while (auto newest = newest_of_all(places, wanted)) {
    const std::filesystem::path file = *newest / kRunName;
    try {
      return RecordedRun{*newest, run_record_from_json(read_content(file), file.string())};
    } catch (const UserError& error) {
      if (!first) first = error;
      unreadable.insert(*newest);
    }
  }
  if (first) throw UserError(*first);
  return std::nullopt;
}

std::string tokenizer_of(const std::filesystem::path& checkpoint, const RunRecord& record) {
  if (record.tokenizer) {
    const std::string& place = record.tokenizer->place;
    if (place == "byte" || !is_in_bucket(checkpoint))
      return place == "byte" ? place : (checkpoint / place).string();
    // Its folder, as one of this machine.
    const RemoteOptions& remote = bucket_store().options();
    const std::string folder = (checkpoint / kTokenizerFolder / "").string();
    const auto inside = std::filesystem::path(place).lexically_relative(kTokenizerFolder);
    return (fetch_directory(list_files(folder, remote), remote) / inside)
        .lexically_normal()
        .string();
  }
  if (!record.converted_from.empty()) {
    throw UserError(cat("checkpoint '", checkpoint.string(), "' was made of ",
                        record.converted_from, " without a tokenizer: give --tokenizer"));
  }
  const std::string& named = record.options.tokenizer;
  std::error_code ignored;
  if (named == "byte" || std::filesystem::exists(named, ignored)) return named;
  throw UserError(cat("checkpoint '", checkpoint.string(),
                      "' does not hold its tokenizer, only its path, '", named,
                      "', and that is not there: give --tokenizer the one that it was trained "
                      "with, or start in the directory where the path leads to it"));
}

std::string model_difference(const ModelConfig& checkpoint, const ModelConfig& run) {
  Json left = Json::parse(model_config_json(checkpoint)),
       right = Json::parse(model_config_json(run));
  for (const auto& [field, value] : left.items()) {
    bool learned_positions = model_family(run.model_type).learned_positions;
    bool of_training = field == "initializer_range" || field == "padding_id" ||
                       field == "lora_dropout" || field.ends_with("_pdrop");
    if (of_training || value == right.at(field) ||
        (field == "max_context_width" && !learned_positions))
      continue;
    return cat(field, ": ", value.dump(), " there, ", right.at(field).dump(), " in this run");
  }
  return "";
}

}  // namespace tessera
