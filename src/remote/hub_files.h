#pragma once
#include <vector>

#include "remote/hub_reference.h"
#include "remote/options.h"
#include "remote/remote_entry.h"

namespace tessera {

// The files that a name on the hub stands for, in the order of their paths, pinned to a commit: all
// of a model's repository, the data files (choose_data_files) of a data set's. A data set whose
// repository holds none (a script, say) is taken as the hub has converted it to Parquet, if it has.
//
// Files that the tools of the hub have fetched to HubSettings::home are taken from there, and with
// HubSettings::offline those are all there is. UserError that says what to do.
std::vector<RemoteEntry> list_hub_files(const HubReference& reference,
                                        const RemoteOptions& options);

// What to do about an answer 401, 403 or 404 of the hub.
std::string hub_advice(const HubSettings& hub);

}  // namespace tessera
