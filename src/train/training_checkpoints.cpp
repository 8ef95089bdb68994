// Checkpoints of a training run: which one it resumes from, and those that it writes.
#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/process_identity.h"
#include "checkpoint/directory.h"
#include "checkpoint/places.h"
#include "options/pretrained_source.h"
#include "train/training_run.h"
#include "weights/checkpoint_conversion.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// What a rank finds of a checkpoint that rank 0 has chosen.
enum class Finding { kWhole, kDamaged, kUnfit, kAnother };

struct Report {
  Finding finding = Finding::kWhole;
  std::string host, text;

  std::string to_text() const { return cat(static_cast<int>(finding), "\n", host, "\n", text); }
  static Report from_text(const std::string& line) {
    size_t host = line.find('\n') + 1, text = line.find('\n', host) + 1;
    return {static_cast<Finding>(line[0] - '0'), line.substr(host, text - 1 - host),
            line.substr(text)};
  }
};

// What rank 0 has chosen is not what this one sees.
struct AnotherCheckpoint : UserError {
  using UserError::UserError;
};

std::string manifest_hash(const fs::path& checkpoint) {
  return hex(identity_of(read_manifest(checkpoint)));
}

bool has_manifest(const fs::path& checkpoint, const std::string& hash) {
  try {
    return manifest_hash(checkpoint) == hash;
  } catch (const UserError&) {
    return false;  // it is not there
  }
}

// By whatever name.
bool is_one_of(const std::set<fs::path>& paths, const fs::path& path) {
  return std::ranges::any_of(paths, [&](const fs::path& one) {
    std::error_code ignored;
    return one == path || fs::equivalent(one, path, ignored);
  });
}

// The newest checkpoint of a directory as this rank sees it, for messages.
std::string what_is_seen(const fs::path& directory) {
  auto found = newest_complete_checkpoint(directory);
  if (!found) return "no checkpoint";
  return cat("'", found->string(), "' (manifest ", manifest_hash(*found), ")");
}

// Of a checkpoint in parts: what hosts tell each other when they load it.
constexpr int64_t kMaxSharedBytes = 16 << 20;

}  // namespace

// Before anything is read there: what one job resumes from no other may change. Later a checkpoint
// that fails is only a warning, so a directory that never worked must stop the run here; but not a
// restart, whose job wrote to it, as long as there is another.
void TrainingRun::open_checkpoint_directories() {
  std::string ids = on_first_rank("lock of the checkpoint directories", [&] {
    std::string job = device_.job_id.empty() ? random_id() : device_.job_id;
    std::string lines = job;
    std::string failure;
    for (Tier& tier : tiers_) {
      failure = lock_tier(tier, job);
      if (!failure.empty() && (device_.attempt == 0 || tiers_.size() == 1))
        throw UserError(failure);
      if (!failure.empty()) TESSERA_WARN(cat(failure, "; this attempt goes on without it"));
      lines += cat("\n", tier.lock ? tier.lock->token() : "");
    }
    if (!tiers_.empty() && std::ranges::none_of(tiers_, &Tier::usable)) throw UserError(failure);
    return lines;
  });
  const auto lines = split(ids, '\n');
  origin_.job = lines[0];
  for (size_t t = 0; t < tiers_.size(); ++t) {
    tiers_[t].usable = !lines.at(t + 1).empty();
    if (tiers_[t].usable) look_at_directory(tiers_[t], origin_.job, std::string(lines[t + 1]));
  }
}

// Of rank 0. What is wrong with the directory; one in use or a checkpoint is wrong in any case.
std::string TrainingRun::lock_tier(Tier& tier, const std::string& job) const {
  const fs::path directory = tier.options.directory;
  try {
    tier.lock = lock_checkpoints(directory, {job, device_.attempt});
  } catch (const DirectoryInUse& error) {
    throw UserError(error.what());
  } catch (const UserError& error) {
    tier.usable = false;
    return cat("--checkpoint_dir: ", error.what(),
               "; give a directory that can be written, or --save_ckpt 0");
  }
  // What is saved in a checkpoint a resume from there does not find, but the one around it.
  if (is_stored(directory / kManifestName)) {
    throw UsageError(cat("--checkpoint_dir: '", directory.string(),
                         "' is a checkpoint; give the directory that it is in"));
  }
  return "";
}

std::string TrainingRun::who_sees_another(const fs::path& directory,
                                          const std::string& token) const {
  auto seen = on_all_ranks("look at a directory that ranks share", [&] {
    return cat(rank() == 0 || sees_lock(directory, token) ? "1" : "0", host_name());
  });
  for (size_t r = 1; r < seen.size(); ++r) {
    if (seen[r][0] == '1') continue;
    return cat("'", directory.string(), "' is another directory for rank ", r, " on ",
               seen[r].substr(1), " than for rank 0 on ", seen[0].substr(1), ", whose '", kLockName,
               "' it does not see there");
  }
  return "";
}

void TrainingRun::look_at_directory(Tier& tier, const std::string& job, const std::string& token) {
  const std::string& directory = tier.options.directory;
  const std::string another = who_sees_another(directory, token);
  if (another.empty()) return;
  if (config_.checkpoint_type != "local") {
    throw UserError(cat("--checkpoint_dir ", another,
                        ": give a directory that all hosts share, or --checkpoint_type local"));
  }
  tier.apart = true;
  TESSERA_INFO(cat("'", directory, "' is a directory of each host: all parts make a checkpoint"));
  on_all_ranks("lock of the hosts' checkpoint directories", [&] {
    if (rank() == 0 || rank() != first_on_host_) return std::string();
    std::string failure;
    try {
      failure = lock_tier(tier, job);
    } catch (const UserError& error) {
      failure = cat(error.what(), "; where some hosts share a directory, all must");
    }
    if (!failure.empty()) throw UserError(failure);
    return std::string();
  });
  int64_t copies = 0;  // that other ranks would write, perhaps elsewhere
  for (const StateBox& box : session_->checkpoint_boxes())
    if (box.is_copy) copies += box.box.elements() * size_of(box.dtype);
  if (device_.control->any("copies between hosts", copies > kMaxSharedBytes)) {
    throw UserError(
        cat("--checkpoint_type local needs a state of which each rank has its own part, "
            "and here ranks have copies: give --sharding_strategy full_shard, or a "
            "directory that all hosts share"));
  }
}

void TrainingRun::share_missing_boxes() {
  if (!device_.control) return;
  const std::vector<BoxIndex> missing = to_resume_->missing_boxes(session_->checkpoint_targets());
  std::string wanted;
  for (const BoxIndex& box : missing) wanted += cat(box.tensor, " ", box.box, "\n");
  if (wanted.size() > kMaxSharedBytes) wanted.clear();
  std::set<BoxIndex> all;
  for (const std::string& text : device_.control->exchange("missing parts", wanted)) {
    for (std::string_view line : split(text, '\n')) {
      const size_t blank = line.find(' ');
      if (blank == std::string_view::npos) continue;
      all.insert({parse_number<uint64_t>(line.substr(0, blank)).value_or(0),
                  parse_number<uint64_t>(line.substr(blank + 1)).value_or(0)});
    }
  }
  // One rank of each host has them, one after the other.
  int64_t shared = 0;
  for (const BoxIndex& box : all) {
    const bool too_much =
        (shared += static_cast<int64_t>(to_resume_->bytes_of(box))) > kMaxSharedBytes;
    if (too_much) break;
    std::string mine;
    const size_t file = to_resume_->manifest().tensors.at(box.tensor).boxes.at(box.box).file;
    if (rank() == first_on_host_ && to_resume_->has_file(file)) {
      try {
        mine = to_resume_->stored_bytes(box);
      } catch (const UserError&) {
        // Whoever needs it says that it is missing.
      }
    }
    for (std::string& bytes : device_.control->exchange("missing parts", mine))
      if (!bytes.empty()) to_resume_->supply(box, std::move(bytes));
  }
}

// Rank 0 chooses; what is damaged for one rank is skipped by all.
std::optional<fs::path> TrainingRun::open_newest(const FindNewest& newest, Damaged& damaged,
                                                 bool verified) {
  while (true) {
    std::string choice = on_first_rank("choice of the checkpoint", [&]() -> std::string {
      const auto found = newest(damaged);
      return found ? cat(manifest_hash(*found), found->string()) : "";
    });
    if (choice.empty()) return std::nullopt;
    const size_t digits = hex(uint64_t{0}).size();
    fs::path checkpoint = choice.substr(digits);
    const std::string damage = open_on_all_ranks(checkpoint, choice.substr(0, digits), verified);
    if (damage.empty()) return to_resume_->path();
    skip(checkpoint, damage, damaged);
  }
}

void TrainingRun::find_in_tiers(const fs::path& checkpoint, const Damaged& damaged) {
  // Of a directory that ranks share rank 0 says it, of others each host.
  auto lacks = [&](const Tier& tier, const fs::path& there) {
    const bool looks = rank() == 0 || (tier.apart && rank() == first_on_host_);
    return looks && (is_one_of(damaged.paths, there) || incomplete_reason(there) ||
                     !has_manifest(there, manifest_hash(checkpoint)));
  };
  for (Tier& tier : tiers_) {
    if (!tier.usable) continue;
    const fs::path there = fs::path(tier.options.directory) / checkpoint.filename();
    bool missing = lacks(tier, there);
    if (device_.control) missing = device_.control->any("look for the checkpoint", missing);
    if (missing) continue;
    tier.last_saved_step = record_.step;
    tier.last_saved_path = there;
  }
}

void TrainingRun::skip(const fs::path& checkpoint, const std::string& damage, Damaged& damaged) {
  to_resume_.reset();
  damaged.paths.insert(checkpoint);
  damaged.last = damage;
  if (rank() == 0) TESSERA_WARN(cat(damage, ". Skipping '", checkpoint.string(), "' on all ranks"));
}

std::optional<fs::path> TrainingRun::find_checkpoint(Damaged& damaged) {
  auto find = [&](const Damaged& those) {
    auto newest = newest_checkpoint(those.paths);
    if (!newest) {
      const auto damage = those.last.empty()
                              ? find_damaged_checkpoint(config_.resume_from_checkpoint)
                              : std::optional(those.last);
      if (damage) throw UserError(cat(*damage, "; there is no older one that is whole"));
      for (const std::string& directory : config_.resume_from_checkpoint)
        if (!is_in_bucket(directory)) refuse_torch_checkpoint(directory);
      if (config_.eval_only && !config_.resume_from_checkpoint.empty() &&
          !find_pretrained_weights(config_)) {
        throw UserError(cat("--eval_only: there is no checkpoint in --resume_from_checkpoint '",
                            join(config_.resume_from_checkpoint, "', '"), "'"));
      }
    }
    require_own_directory(newest);
    return newest;
  };
  const std::string run_before = origin_.run;
  auto found = open_newest(find, damaged);
  if (found) {
    require_no_later(damaged);
    origin_.run = to_resume_->origin().run;
  } else {
    require_none_seen();
  }
  bool continues = !origin_.run.empty();
  if (!continues) origin_.run = origin_.job;  // fresh, or from before there were identities
  if (!to_resume_ && device_.attempt > 0 && !tiers_.empty()) {
    if (rank() == 0)
      TESSERA_WARN(cat("This restart begins from scratch: there is no checkpoint of the job in '",
                       join(config_.checkpoint_dir, "', '"), "'"));
  } else if (!to_resume_ && !config_.resume_from_checkpoint.empty()) {
    TESSERA_INFO("No Checkpoints Found");
  }
  if (origin_.run != run_before && (to_resume_ || !tiers_.empty()))
    TESSERA_INFO(cat("Run ", origin_.run, continues ? ", continued" : ""));
  return found;
}

// Where rank 0 starts afresh no other rank may see what it could go on with.
void TrainingRun::require_none_seen() const {
  const auto& sources = config_.resume_from_checkpoint;
  if (sources.empty() || world_size() == 1) return;
  auto seen = on_all_ranks("look for checkpoints", [&] {
    auto found = rank() == 0 ? std::nullopt : newest_of_all(sources);
    return cat(host_name(), "\n", found ? found->string() : "");
  });
  for (size_t r = 1; r < seen.size(); ++r) {
    auto lines = split(seen[r], '\n');
    if (lines.at(1).empty()) continue;
    throw UserError(cat("ranks 0 on ", split(seen[0], '\n')[0], " and ", r, " on ", lines[0],
                        " see different directories under --resume_from_checkpoint: rank 0 no "
                        "checkpoint, rank ",
                        r, " '", lines[1], "'; give a directory that all hosts share"));
  }
}

// After a restart by the agent that of the job itself, whatever else is there.
std::optional<fs::path> TrainingRun::newest_checkpoint(const std::set<fs::path>& damaged) const {
  auto whole = [&](const fs::path& path) { return !damaged.contains(path); };
  if (device_.attempt > 0 && !tiers_.empty()) {
    auto own = newest_of_all(config_.checkpoint_dir, [&](const fs::path& path) {
      return whole(path) && read_manifest(path).origin.job == origin_.job;
    });
    if (own) return own;
  }
  return newest_of_all(config_.resume_from_checkpoint, whole);
}

// Two runs in one directory could not be told apart later, and one would remove what the other
// needs.
void TrainingRun::require_own_directory(const std::optional<fs::path>& resumed) const {
  std::string run = resumed ? read_manifest(*resumed).origin.run : "";
  if (resumed && run.empty()) run = origin_.job;
  for (const Tier& tier : tiers_) {
    if (!tier.lock) continue;
    auto other = checkpoint_of_another_run(tier.options.directory, run);
    if (!other) continue;
    throw UsageError(cat("--checkpoint_dir '", tier.options.directory, "' holds checkpoints of ",
                         resumed ? "another run than the one resumed" : "an earlier run", " ('",
                         other->filename().string(), "'): ", "give --resume_from_checkpoint ",
                         join(config_.checkpoint_dir, " "), " to go on with ",
                         resumed ? "that one" : "it", ", or another --checkpoint_dir"));
  }
}

// Who names an older checkpoint gives up those behind it. In one directory with what is trained now
// they would be what a rewind and the next resume take, and what stays of the newest N. But not
// damaged ones, over which the run goes on by itself.
void TrainingRun::require_no_later(const Damaged& damaged) const {
  if (tiers_.empty()) return;
  if (device_.attempt > 0) return;  // the job has begun, and goes on with its own
  const fs::path resumed = to_resume_->path();
  const int64_t step = record_of(*to_resume_).step;
  on_first_rank("look for later checkpoints", [&] {
    for (const Tier& tier : tiers_) {
      std::vector<std::string> later;  // the latest first
      if (!tier.lock) continue;
      for (const CheckpointEntry& entry : list_checkpoints(tier.options.directory))
        if (entry.step > step && entry.maker.empty() && !is_one_of(damaged.paths, entry.path) &&
            !incomplete_reason(entry.path))
          later.push_back(cat("'", entry.path.filename().string(), "'"));
      if (later.empty()) continue;
      throw UsageError(
          cat("--checkpoint_dir '", tier.options.directory,
              "' holds later checkpoints than the one ", "resumed, '", resumed.string(), "': ",
              later.size() == 1 ? later[0]
                                : cat(later.size(), ", ", later.back(), " to ", later.front()),
              ". Move them away or remove them, or give another --checkpoint_dir; "
              "--resume_from_checkpoint ",
              join(config_.checkpoint_dir, " "), " goes on with the latest"));
    }
    return std::string();
  });
}

// What work throws on any rank: damage is the result, "" where there is none; the rest a UserError
// on all ranks.
std::string TrainingRun::find_damage(const std::string& what, const std::function<void()>& work) {
  auto all = on_all_ranks(what, [&] {
    Report found{Finding::kWhole, host_name(), ""};
    try {
      work();
    } catch (const DamagedCheckpoint& error) {
      found = {Finding::kDamaged, found.host, error.what()};
    } catch (const AnotherCheckpoint& error) {
      found = {Finding::kAnother, found.host, error.what()};
    } catch (const PartElsewhere& error) {
      found = {Finding::kUnfit, found.host,
               cat(error.what(),
                   ": start with the mesh that wrote it, ranks on the same hosts, or "
                   "copy the directories of all hosts into one that they share")};
    } catch (const UserError& error) {
      found = {Finding::kUnfit, found.host, error.what()};
    }
    return found.to_text();
  });
  std::vector<Report> reports;
  for (const std::string& text : all) reports.push_back(Report::from_text(text));
  std::string damage;
  for (size_t r = 0; r < reports.size(); ++r) {
    const Report& report = reports[r];
    std::string who = world_size() > 1 ? cat("rank ", r, " on ", report.host, ": ") : "";
    if (report.finding == Finding::kAnother) {
      throw UserError(cat("ranks 0 on ", reports[0].host, " and ", r, " on ", report.host,
                          " see different checkpoints: ", report.text,
                          "; give a directory that all hosts share"));
    }
    if (report.finding == Finding::kUnfit) throw UserError(who + report.text);
    if (report.finding == Finding::kDamaged && damage.empty()) damage = who + report.text;
  }
  return damage;
}

// "" if all ranks can load the checkpoint, as far as is seen before its tensors are read or, with
// `verified`, after they are. UserError where ranks see different ones, or it is not of this job's
// shape.
std::string TrainingRun::open_on_all_ranks(const fs::path& checkpoint, const std::string& hash,
                                           bool verified) {
  to_resume_.reset();
  std::string damage = find_damage("look for the checkpoint", [&] {
    if (has_manifest(checkpoint, hash)) {
      to_resume_ = open_checkpoint(checkpoint);
    } else if (config_.checkpoint_type == "local") {
      throw DamagedCheckpoint(cat("'", checkpoint.string(), "' has no part here"));
    } else {
      throw AnotherCheckpoint(cat("rank 0 '", checkpoint.string(), "' (manifest ", hash, "), rank ",
                                  rank(), " ", what_is_seen(checkpoint.parent_path())));
    }
  });
  if (!damage.empty()) return damage;
  if (config_.checkpoint_type == "local") share_missing_boxes();
  return find_damage("verification of the checkpoint", [&] {
    const std::vector<StateTarget> targets = session_->checkpoint_targets();
    if (verified) to_resume_->verify(targets, device_.pool);
    for (const BoxIndex& box : to_resume_->missing_boxes(targets)) to_resume_->require(box);
  });
}

}  // namespace tessera
