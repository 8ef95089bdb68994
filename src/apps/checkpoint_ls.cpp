#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/checkpoint_command.h"
#include "base/error.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory_lock.h"
#include "checkpoint/places.h"
#include "options/run_record.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Listed {
  CheckpointEntry entry;
  std::optional<std::string> incomplete;  // why
  double age = 0;                         // seconds since the manifest was written
  int64_t ranks = 0, state_files = 0, bytes = 0;
  CheckpointOrigin origin;
  bool newest = false, best = false;
  bool is_part = false;  // that of one host
  bool replaced = false;
};

// "state-00002-of-00004-b.safetensors" is of 4 ranks.
int64_t ranks_of(std::string_view state_file) {
  constexpr std::string_view kOf = "-of-";
  size_t at = state_file.find(kOf);
  int64_t ranks = 1;
  if (at != std::string_view::npos) {
    state_file.remove_prefix(at + kOf.size());
    std::from_chars(state_file.data(), state_file.data() + state_file.size(), ranks);
  }
  return ranks;
}

Listed look_at(const CheckpointEntry& entry) {
  Listed one{.entry = entry, .incomplete = incomplete_reason(entry.path)};
  one.replaced = is_superseded(entry);
  one.age = age_of(entry.path / kManifestName).value_or(0);
  try {
    Manifest manifest = read_manifest(entry.path);
    one.origin = manifest.origin;
    for (const ManifestFile& file : manifest.files) {
      one.bytes += static_cast<int64_t>(file.bytes);
      const auto index = static_cast<size_t>(&file - manifest.files.data());
      one.is_part |= manifest.is_elsewhere(index) && !is_stored(entry.path / file.name);
      if (!file.name.starts_with("state") || !file.name.ends_with(".safetensors")) continue;
      ++one.state_files;
      one.ranks = std::max(one.ranks, ranks_of(file.name));
    }
  } catch (const UserError&) {
    // `incomplete` says so.
  }
  return one;
}

// The newest complete one, and the one that it calls the best.
void mark(std::vector<Listed>& all) {
  for (Listed& newest : all) {
    if (newest.incomplete) continue;
    newest.newest = true;
    std::string best;
    try {
      best = record_of(CheckpointReader(newest.entry.path)).best_checkpoint;
    } catch (const UserError&) {
      return;  // verify says what is wrong with it
    }
    for (Listed& one : all)
      one.best = !best.empty() && checkpoint_name(one.entry.model_type, one.entry.step) == best;
    return;
  }
}

std::string marks(const Listed& one) {
  std::vector<std::string> marks;
  if (one.newest) marks.push_back("newest");
  if (one.best) marks.push_back("best");
  if (one.replaced) marks.push_back("replaced by a newer one of its step");
  if (one.is_part) marks.push_back("the part of one host");
  if (one.incomplete) marks.push_back("not complete: " + *one.incomplete);
  return join(marks, ", ");
}

Json to_json(const Listed& one) {
  const auto& e = one.entry;
  return {{"name", e.path.filename().string()},
          {"path", e.path.string()},
          {"model_type", e.model_type},
          {"step", e.step},
          {"age_seconds", one.age},
          {"ranks", one.ranks},
          {"state_files", one.state_files},
          {"bytes", one.bytes},
          {"run", one.origin.run},
          {"job", one.origin.job},
          {"complete", !one.incomplete},
          {"part", one.is_part},
          {"reason", one.incomplete ? Json(*one.incomplete) : Json(nullptr)},
          {"newest", one.newest},
          {"best", one.best},
          {"replaced", one.replaced}};
}

std::string listing(const std::vector<Listed>& all) {
  std::vector<std::vector<std::string>> rows{
      {"name", "step", "age", "ranks", "files", "bytes", "run", ""}};
  for (const Listed& one : all) {
    const bool readable = one.state_files > 0;
    rows.push_back({one.entry.path.filename().string(), cat(one.entry.step),
                    readable ? format_duration(one.age) : "?", readable ? cat(one.ranks) : "?",
                    readable ? cat(one.state_files) : "?", readable ? format_bytes(one.bytes) : "?",
                    short_identity(one.origin.run), marks(one)});
  }
  return all.empty() ? "no checkpoints\n" : columns(rows);
}

}  // namespace

int list_checkpoint_directory(const ParsedOptions& parsed) {
  if (parsed.words.size() != 2)
    throw UsageError("checkpoint ls takes one directory: tessera checkpoint ls DIR");
  const fs::path directory = parsed.words[1];
  std::vector<Listed> all;
  std::vector<CheckpointEntry> leftovers;
  if (is_stored(directory / kManifestName)) {
    for (const CheckpointEntry& entry : checkpoints_at(directory)) all.push_back(look_at(entry));
  } else {
    for (const CheckpointEntry& entry : list_checkpoints(directory)) {
      if (entry.maker.empty())
        all.push_back(look_at(entry));
      else
        leftovers.push_back(entry);
    }
  }
  mark(all);
  auto lock = find_lock(directory);
  if (parsed.config.json) {
    Json json{{"directory", directory.string()}, {"checkpoints", Json::array()}};
    for (const Listed& one : all) json["checkpoints"].push_back(to_json(one));
    json["leftovers"] = Json::array();
    for (const CheckpointEntry& entry : leftovers) {
      json["leftovers"].push_back({{"name", entry.path.filename().string()},
                                   {"maker_has_ended", maker_has_ended(entry.maker)}});
    }
    json["lock"] = lock ? Json{{"holder", lock->holder}, {"seconds_untouched", lock->untouched}}
                        : Json(nullptr);
    print_json(json);
    return 0;
  }
  std::string text = listing(all);
  for (const CheckpointEntry& entry : leftovers) {
    text +=
        cat("leftover  ", entry.path.filename().string(),
            maker_has_ended(entry.maker) ? ", of a process that has ended"
                                         : ", being written or removed, or left by another host",
            "\n");
  }
  if (lock) {
    text += cat("held by ", lock->holder, ", ",
                lock->untouched < 30 ? "which gave a sign of life " : "without a sign of life for ",
                format_duration(lock->untouched), lock->untouched < 30 ? " ago\n" : "\n");
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
