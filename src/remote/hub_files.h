#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "remote/hub_reference.h"
#include "remote/options.h"
#include "remote/remote_entry.h"

namespace tessera {

// The files that a name on the hub stands for, in the order of their paths, pinned to a commit: all
// of a model's repository, the data files of a data set's, as its card (choose_card_files) or else
// their paths (choose_data_files) tell. A data set whose repository holds none (a script, say) is
// taken as the hub has converted it to Parquet, if it has.
//
// Files that the tools of the hub have fetched to HubSettings::home are taken from there, and with
// HubSettings::offline those are all there is, or those of a model of which the cache has the list.
// A list is asked for once: that of a commit does not change. UserError that says what to do.
std::vector<RemoteEntry> list_hub_files(const HubReference& reference,
                                        const RemoteOptions& options);

// The reference at the commit that its revision is now. Where the hub cannot be reached, or
// HubSettings::offline, that which it was when it was asked last, by the hub's tools or by this
// program. UserError that says what to do.
HubReference pin_hub_reference(const HubReference& reference, const RemoteOptions& options);

// Of the files of a model those that the hub's tools have fetched to HubSettings::home, for whom
// wants no other: nobody is asked. nullopt where there are none of this revision.
std::optional<std::vector<RemoteEntry>> find_fetched_model(const HubReference& reference,
                                                           const RemoteOptions& options);

// The directory of a pinned model in the cache: what has been fetched of it.
std::filesystem::path model_snapshot(const HubReference& reference, const RemoteOptions& options);

// The model whose directory in a cache (of the hub's tools or of this program) that is, pinned.
std::optional<HubReference> model_of_snapshot(const std::filesystem::path& directory);

// What to do about an answer 401, 403 or 404 of the hub.
std::string hub_advice(const HubSettings& hub);

}  // namespace tessera
