#include "data/training_choice.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "remote/hub_listing.h"
#include "remote/hub_reference.h"
#include "remote/source.h"

namespace tessera {

void warn_of_files_left_alone(const std::string& name, std::vector<RemoteEntry> files) {
  // What describes a data set is no data.
  std::erase_if(files, [](const RemoteEntry& file) { return lower(file.path).ends_with(".md"); });
  if (files.empty()) return;
  const bool one = files.size() == 1, of_card = !files[0].split.empty();
  TESSERA_WARN_ONCE(cat("'", name, "': ", files.size(), one ? " file whose " : " files whose ",
                        of_card ? "split" : "name", one ? "" : "s", of_card ? " in README.md" : "",
                        one ? " says" : " say", " neither train nor validation ",
                        one ? "is left alone: '" : "are left alone, the first: '",
                        shown_name(files[0]), "'",
                        of_card ? cat(", of '", files[0].split, "'") : ""));
}

void keep_one_kind(const std::string& name, DatasetFiles& files) {
  DataKind best = DataKind::kNone;
  for (const RemoteEntry& file : files.training) best = std::min(best, data_kind(file.path));
  auto is_best = [&](const RemoteEntry& file) { return data_kind(file.path) == best; };
  auto is_other = [&](const RemoteEntry& file) {
    return !is_best(file) && data_kind(file.path) != DataKind::kNone;
  };
  const auto first = std::ranges::find_if(files.training, is_other);
  if (first == files.training.end()) return;
  const auto others = static_cast<size_t>(std::ranges::count_if(files.training, is_other));
  TESSERA_WARN_ONCE(left_out_kinds(name, best, others, shown_name(*first),
                                   "a pattern, or a directory of their own, reads them"));
  std::erase_if(files.training, is_other);
  if (std::ranges::any_of(files.validation, is_best)) std::erase_if(files.validation, is_other);
}

void warn_of_several_splits(const std::string& name, const std::string& config,
                            const std::vector<RemoteEntry>& files) {
  std::set<std::string> splits;
  for (const RemoteEntry& file : files)
    splits.insert(file.split.empty() ? split_of(file.path) : file.split);
  splits.erase("");
  if (splits.size() < 2) return;
  const bool is_of_card =
      std::ranges::any_of(files, [](auto& file) { return !file.split.empty(); });
  const bool can_choose =
      config.empty() && (!is_address(name) ||
                         (name.starts_with("hf://") && parse_hub_reference(name).config.empty()));
  TESSERA_WARN_ONCE(cat("'", name, "': all of several splits is training data: ",
                        some_of(std::vector(splits.begin(), splits.end())), "; ",
                        can_choose   ? cat("--dataset_config_name ", *splits.begin(), " reads one")
                        : is_of_card ? cat("CONFIGURATION/", *splits.begin(), " reads one")
                                     : "give one a directory of its own to read it alone"));
}

}  // namespace tessera
