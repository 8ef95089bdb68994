#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "hub/parameter_source.h"
#include "models/model_config.h"
#include "options/run_config.h"
#include "options/run_record.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// A model with its weights where they lie.
struct TrainedModel {
  std::filesystem::path path;  // the checkpoint or the directory, for messages
  ModelConfig model;
  int64_t context = 1;            // tokens that it may see at once
  DType compute = DType::kF32;    // in which it was trained; f32 for f16
  std::string tokenizer;          // name or path, as load_tokenizer() takes it
  std::string chat_template;      // that its run named by --chat_template; "": the tokenizer's own
  std::vector<int32_t> end_ids;   // that end a text, besides the tokenizer's own
  bool documents_joined = false;  // trained on documents with an end of text between them, as far
                                  // as is known
  std::shared_ptr<const ParameterSource> weights;
  std::optional<RunRecord> record;  // of a checkpoint
};

// `name`: a checkpoint, of one part or of several ranks' parts, or the newest complete one of a
// directory; else a Hugging Face model: a directory, one in the cache of this machine (--hf_home),
// or one on a server, which is fetched (hub/remote_model.h). `tokenizer` takes the place of its
// own. UserError: there is none, it is damaged, or what is there does not fit together.
TrainedModel open_trained_model(const std::string& name, const RunConfig& options,
                                const std::optional<std::string>& tokenizer = {});

// Warns where the one that --tokenizer put in that place, `name` for people, makes other ids.
void warn_of_other_tokenizer(const std::string& name, const Tokenizer& tokenizer,
                             const TrainedModel& model);

}  // namespace tessera
