#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/checkpoint_command.h"
#include "apps/data_input.h"
#include "apps/progress.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"
#include "checkpoint/verification.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

CheckpointVerification verify_all_of(const fs::path& checkpoint, int threads) {
  Progress progress("reading");
  CheckpointVerification result = verify_checkpoint(
      checkpoint, threads,
      [&](int64_t done, int64_t total) { progress.show(done, total, format_bytes); });
  if (!result.damages.empty()) return result;
  // The bytes are those that were written; whether they are a checkpoint of a run is left.
  try {
    const auto reader = open_checkpoint(checkpoint);
    record_of(*reader);
    result.tensors = std::ssize(reader->manifest().tensors);
    result.boxes = 0;  // manifests of version 1 do not tell of them
    for (const ManifestTensor& tensor : reader->manifest().tensors)
      result.boxes += std::ssize(tensor.boxes);
  } catch (const UserError& error) {
    result.damages.push_back({std::string(kRunName), "", {}, error.what()});
  }
  return result;
}

std::string report(const fs::path& checkpoint, const CheckpointVerification& result,
                   double seconds) {
  std::string text;
  if (result.damages.empty()) {
    text = cat(checkpoint.string(), ": whole, ", result.files, " files, ", result.tensors,
               " tensors in ", result.boxes, " boxes, ", format_bytes(result.bytes), " in ",
               format("%.1f", seconds), " s\n");
  } else {
    text = cat(checkpoint.string(), ": damaged\n");
    for (const CheckpointDamage& damage : result.damages)
      text += cat("  ", to_string(damage), "\n");
  }
  for (const std::string& name : result.foreign)
    text += cat("  ", name, " is no part of the checkpoint\n");
  return text;
}

Json to_json(const fs::path& checkpoint, const CheckpointVerification& result) {
  Json damages = Json::array();
  for (const CheckpointDamage& damage : result.damages) {
    Json one{{"file", damage.file}};
    if (!damage.tensor.empty()) {
      one["tensor"] = damage.tensor;
      one["begin"] = damage.box.begin;
      one["shape"] = damage.box.shape;
    }
    one["what"] = damage.what;
    damages.push_back(std::move(one));
  }
  return {{"checkpoint", checkpoint.string()},
          {"whole", result.damages.empty()},
          {"files", result.files},
          {"tensors", result.tensors},
          {"boxes", result.boxes},
          {"bytes", result.bytes},
          {"damages", std::move(damages)},
          {"foreign", result.foreign}};
}

}  // namespace

int verify_checkpoints(const ParsedOptions& parsed) {
  if (parsed.words.size() != 2) {
    throw UsageError(
        "checkpoint verify takes a checkpoint or a directory of them: tessera checkpoint verify "
        "CHECKPOINT|DIR");
  }
  bool whole = true;
  Json results = Json::array();
  for (const CheckpointEntry& entry : checkpoints_at(parsed.words[1])) {
    const double begin = monotonic_seconds();
    CheckpointVerification result = verify_all_of(entry.path, threads_of(parsed));
    if (!is_stored(entry.path)) {
      TESSERA_WARN(cat("'", entry.path.string(), "' was removed while it was read"));
      continue;  // by a job that saves there
    }
    whole = whole && result.damages.empty();
    if (parsed.config.json) {
      results.push_back(to_json(entry.path, result));
      continue;
    }
    std::fputs(report(entry.path, result, monotonic_seconds() - begin).c_str(), stdout);
    std::fflush(stdout);
  }
  if (parsed.config.json) print_json({{"whole", whole}, {"checkpoints", std::move(results)}});
  return whole ? 0 : 1;
}

}  // namespace tessera
