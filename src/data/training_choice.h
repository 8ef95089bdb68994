#pragma once
#include <string>
#include <vector>

#include "data/dataset_files.h"

namespace tessera {

// Warns of the files of a data set `name` that are of neither part where others say that they are:
// their names or, of a card's, their splits say neither.
void warn_of_files_left_alone(const std::string& name, std::vector<RemoteEntry> files);

// Of a directory `name` the training files of the first kind that there is (data_kind()), as of a
// repository on the hub, and its validation files of that kind, if there are any; a warning names
// the others. What has a name of none of these kinds stays: only reading tells what it is.
void keep_one_kind(const std::string& name, DatasetFiles& files);

// Where training files are of several splits (split_of()): all are read, and a warning names them.
void warn_of_several_splits(const std::string& name, const std::string& config,
                            const std::vector<RemoteEntry>& files);

}  // namespace tessera
