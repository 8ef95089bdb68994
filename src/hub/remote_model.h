#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "remote/options.h"

namespace tessera {

// A model, or a tokenizer, that lies on a server:
//   OWNER/NAME or OWNER/NAME@REVISION on the hub, or gpt2 and others that find_model_name() knows,
//   where nothing on this machine has that path;
//   hf://OWNER/NAME[@REVISION], the same whatever is on this machine;
//   https://HOST/DIRECTORY, s3://BUCKET/PREFIX, with the files that a model directory has, or the
//   address of one of them.
bool is_remote_model(std::string_view name);

// Which of its files are wanted.
struct ModelParts {
  bool configuration = false;  // config.json, generation_config.json
  bool tokenizer = false;      // those of a tokenizer, of whatever kind
  bool weights = false;        // model.safetensors, or its index and the files that it names
};

// The name by which it is the same tomorrow: of the hub hf://OWNER/NAME@COMMIT, else the name
// itself. A model that the hub's tools have fetched (RemoteOptions::hub.home) is taken as they have
// it, if all that is wanted is there, and nobody is asked. UserError that says what to do.
std::string pin_model(std::string_view name, ModelParts parts, const RemoteOptions& options);

// Fetches what is wanted of it to the cache, unless it is there. The directory that it is in, which
// may hold more; of the address of a file of a tokenizer, where no more is wanted, that file in it.
// UserError: no such model, no access, no network, no room; no configuration, or no weights that
// can be read, where they are wanted.
std::filesystem::path fetch_model(std::string_view name, ModelParts parts,
                                  const RemoteOptions& options);

// hf://OWNER/NAME@COMMIT of a directory that is a model's in a cache; any other text as it is.
std::string model_name_of(const std::string& path);

}  // namespace tessera
