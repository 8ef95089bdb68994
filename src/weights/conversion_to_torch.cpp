#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "hub/saved_state.h"
#include "models/build_model.h"
#include "models/hugging_face_tensor.h"
#include "models/model_family.h"
#include "torch_files/dcp_writer.h"
#include "weights/checkpoint_conversion.h"
#include "weights/model_export.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr uint64_t kFileBytes = uint64_t{8} << 30;  // about: a new file begins behind it
constexpr double kTorchEpsilon = 1e-8;              // of this program's AdamW

class DcpConversion {
 public:
  DcpConversion(const CheckpointReader& reader, const RunRecord& record, const fs::path& directory,
                const ConversionProgress& progress)
      : reader_(reader),
        record_(record),
        directory_(directory),
        progress_(progress),
        model_(completed(record.model)),
        parameters_(build_model(model_, 1, 1, ModelHead::kLoss).parameters) {
    for (const Parameter& p : build_model(record.model, 1, 1, ModelHead::kLoss).parameters)
      own_.insert(p.name);
  }

  void run() {
    for (const Parameter& p : parameters_) add_total(p);
    for (const Parameter& p : parameters_) add_parameter(p);
    add_groups();
    if (file_) file_->commit();
    write_dcp_metadata(directory_, metadata_, paths_);
    if (!model_family(record_.model.model_type).classes.empty())
      write_file_atomic(directory_ / "config.json", hugging_face_config_json(model_));
  }

 private:
  // As PyTorch's model of the family is.
  static ModelConfig completed(ModelConfig model) {
    if (auto complete = model_family(model.model_type).complete) complete(model);
    return model;
  }

  static std::string kept_name(const Parameter& p, std::string_view kind) {
    return cat("optim.state.", p.name, ".", kind);
  }

  // Of a parameter that this model lacks, so that it is zero.
  const ManifestTensor* zeros(const Parameter& p) {
    return &zeros_.emplace_back(
        ManifestTensor{p.name, TensorRole::kWeight, DType::kF32, p.shape, {}});
  }

  const ManifestTensor* find_weight(const Parameter& p) {
    if (!own_.contains(p.name)) return zeros(p);
    const ManifestTensor* tensor = reader_.find(p.name);
    if (!tensor || tensor->shape != p.shape) {
      throw UserError(cat("checkpoint '", reader_.path().string(),
                          "' does not fit its record: it should have '", p.name, "' of ",
                          to_string(p.shape)));
    }
    return tensor;
  }

  std::vector<std::pair<std::string, const ManifestTensor*>> kept(const Parameter& p) {
    std::vector<std::pair<std::string, const ManifestTensor*>> all;
    if (!own_.contains(p.name)) {  // as if it had been trained, with gradients of zero
      auto other = std::ranges::find_if(parameters_, [&](const Parameter& q) {
        return own_.contains(q.name) && reader_.find(kept_name(q, "step"));
      });
      if (other == parameters_.end()) return all;
      for (auto& [kind, tensor] : kept(*other))
        all.emplace_back(kind, kind == "step" ? tensor : zeros(p));
      return all;
    }
    for (const char* kind : {"exp_avg", "exp_avg_sq", "momentum_buffer", "step"})
      if (const ManifestTensor* tensor = reader_.find(kept_name(p, kind)))
        all.emplace_back(kind, tensor);
    return all;
  }

  void add_total(const Parameter& p) {
    total_ += find_weight(p)->bytes();
    for (const auto& [kind, tensor] : kept(p)) total_ += tensor->bytes();
  }

  void add_parameter(const Parameter& p) {
    const HuggingFaceTensor there = hugging_face_tensor(record_.model.model_type, p);
    add_tensor({"model", p.name}, *find_weight(p), there);
    // All names of a tied matrix are in a state dict of PyTorch's.
    const TensorNames& family = model_family(record_.model.model_type).tensors;
    const bool tied =
        p.name == family.embedding &&
        std::ranges::find(parameters_, family.output, &Parameter::name) == parameters_.end();
    const auto others = tied ? names_of_head() : other_names(p);
    for (const std::string& name : others) add_name({"model", name});
    auto all = kept(p);
    if (!all.empty()) trained_.push_back(&p);
    for (const auto& [kind, tensor] : all) {
      const bool scalar = tensor->shape.empty();
      add_tensor({"optim", "state", p.name, kind}, *tensor, scalar ? HuggingFaceTensor{} : there);
      for (const std::string& name : other_names(p)) add_name({"optim", "state", name, kind});
    }
  }

  // That a model of PyTorch's may have, by the version of transformers.
  std::vector<std::string> names_of_head() const {
    const TensorNames& family = model_family(record_.model.model_type).tensors;
    std::vector<std::string> names{std::string(family.output)};
    if (!family.output_in_memory.empty()) names.emplace_back(family.output_in_memory);
    return names;
  }
  // Beside its own.
  std::vector<std::string> other_names(const Parameter& p) const {
    std::vector<std::string> names = names_of_head();
    if (names[0] != p.name) return {};
    names.erase(names.begin());
    return names;
  }
  // The tensor that was added last under one more.
  void add_name(std::vector<std::string> path) {
    DcpTensor same = metadata_.tensors.back();
    same.name = join(path, ".");
    paths_[same.name] = std::move(path);
    metadata_.tensors.push_back(std::move(same));
  }

  // The bytes are checked against their hashes before they are copied.
  void add_tensor(std::vector<std::string> path, const ManifestTensor& tensor,
                  const HuggingFaceTensor& there) {
    for (const StoredBox& stored : tensor.boxes) {
      check_interruption();
      reader_.verify(tensor, stored);
    }
    DcpTensor out{join(path, "."), "", tensor.dtype, there.shape, {}};
    const int64_t size = size_of(tensor.dtype);
    const int64_t rows = there.shape.empty() ? 1 : there.shape[0],
                  width = num_elements(there.shape) / std::max<int64_t>(rows, 1);
    const int64_t step = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, width * size));
    for (int64_t row = 0; row < rows; row += step) {
      TensorBox box = whole_box(there.shape);
      if (!box.shape.empty()) {
        box.begin[0] = row;
        box.shape[0] = std::min(step, rows - row);
      }
      const int64_t count = box.elements();
      chunk_.assign(static_cast<size_t>(count * size), std::byte{0});
      if (tensor.boxes.empty()) {
        // zeros
      } else if (there.transposed) {
        read_columns(tensor, row, box.shape[0], width);
      } else {
        read_elements(tensor, row * width, count);
      }
      out.chunks.push_back({box, add_chunk(tensor.dtype, box.shape)});
      done_ += count * size;
      if (progress_) progress_(done_, total_);
    }
    paths_[out.name] = std::move(path);
    metadata_.tensors.push_back(std::move(out));
  }

  void read_elements(const ManifestTensor& tensor, int64_t first, int64_t count) {
    const int64_t size = size_of(tensor.dtype);
    int64_t at = 0;
    for (const TensorBox& box : boxes_of_range(tensor.shape, first, count)) {
      reader_.read(tensor, box, [&](int64_t element, std::span<const std::byte> content) {
        std::ranges::copy(content, chunk_.begin() + (at + element) * size);
      });
      at += box.elements();
    }
  }

  // Rows of the transpose [in, out] of a parameter, which is [out, in] or a stack of such.
  void read_columns(const ManifestTensor& tensor, int64_t first, int64_t count, int64_t out) {
    TensorBox box = whole_box(tensor.shape);
    box.begin.back() = first;
    box.shape.back() = count;
    const int64_t size = size_of(tensor.dtype);
    reader_.read(tensor, box, [&](int64_t element, std::span<const std::byte> content) {
      const int64_t elements = static_cast<int64_t>(content.size()) / size;
      for (int64_t e = 0; e < elements; ++e) {
        const int64_t row = (element + e) / count, column = (element + e) % count;
        std::ranges::copy(content.subspan(static_cast<size_t>(e * size), static_cast<size_t>(size)),
                          chunk_.begin() + (column * out + row) * size);
      }
    });
  }

  DcpFileWriter& file() {
    if (file_ && file_bytes_ < kFileBytes) return *file_;
    if (file_) file_->commit();
    const auto rank = static_cast<uint32_t>(metadata_.files.size());
    metadata_.files.push_back(dcp_file_name(rank));
    file_ = std::make_unique<DcpFileWriter>(directory_, rank);
    file_bytes_ = 0;
    return *file_;
  }

  DcpPlace add_chunk(DType dtype, const Shape& shape) {
    DcpPlace place = file().add_chunk(dtype, shape, [&](uint64_t at, std::span<std::byte> to) {
      check_interruption();
      std::copy_n(chunk_.begin() + static_cast<int64_t>(at), to.size(), to.begin());
    });
    file_bytes_ += place.bytes;
    return place;
  }

  using Setting = std::pair<std::string, std::function<void(PickleWriter&)>>;

  std::vector<Setting> settings(bool decays) const {
    Schedule schedule({});
    if (record_.converted_from.empty()) schedule.resume(record_.schedule);
    const RunConfig& c = record_.options;
    auto number = [](double value) { return [value](PickleWriter& w) { w.number(value); }; };
    auto truth = [](bool value) { return [value](PickleWriter& w) { w.truth(value); }; };
    auto none = [](PickleWriter& w) { w.none(); };
    const bool known = record_.converted_from.empty();
    const int64_t epoch = std::max<int64_t>(1, record_.epoch);
    std::vector<Setting> all{{"lr", number(known ? schedule.rate(record_.step, epoch) : c.lr)},
                             {"initial_lr", number(known ? record_.schedule.start_lr : c.lr)},
                             {"weight_decay", number(decays ? c.weight_decay : 0.0)},
                             {"maximize", truth(false)},
                             {"foreach", none},
                             {"differentiable", truth(false)},
                             {"fused", none}};
    if (c.optimizer == "sgd") {
      all.emplace_back("momentum", number(c.momentum));
      all.emplace_back("dampening", number(0));
      all.emplace_back("nesterov", truth(false));
      return all;
    }
    all.emplace_back("betas", [&c](PickleWriter& w) {
      w.mark();
      w.number(c.beta1);
      w.number(c.beta2);
      w.tuple();
    });
    all.emplace_back("eps", number(kTorchEpsilon));
    all.emplace_back("amsgrad", truth(false));
    all.emplace_back("capturable", truth(false));
    all.emplace_back("decoupled_weight_decay", truth(true));
    return all;
  }

  // Under the number of the group, and under the name of every parameter in it.
  void add_groups() {
    int64_t number = 0;
    for (bool decays : {true, false}) {
      std::vector<const Parameter*> members;
      for (const Parameter* p : trained_)
        if ((p->decay || record_.options.decay_all) == decays) members.push_back(p);
      if (members.empty()) continue;
      const std::string group = cat(number++);
      for (const auto& [name, value] : settings(decays)) {
        const DcpPlace place = file().add_item(value);
        add_item({"optim", "param_groups", group, name}, place);
        for (const std::string& member : names_of(members))
          add_item({"optim", cat("param_groups.", member, ".", name)}, place);
      }
      const DcpPlace place = file().add_item([&](PickleWriter& w) {
        w.empty_list();
        w.mark();
        for (const std::string& member : names_of(members)) w.text(member);
        w.append_items();
      });
      add_item({"optim", "param_groups", group, "params"}, place);
    }
  }
  std::vector<std::string> names_of(const std::vector<const Parameter*>& members) const {
    std::vector<std::string> names;
    for (const Parameter* p : members) {
      names.push_back(p->name);
      for (std::string& name : other_names(*p)) names.push_back(std::move(name));
    }
    return names;
  }
  void add_item(std::vector<std::string> path, const DcpPlace& place) {
    std::string name = join(path, ".");
    metadata_.items.push_back({name, place});
    paths_[std::move(name)] = std::move(path);
  }

  const CheckpointReader& reader_;
  const RunRecord& record_;
  fs::path directory_;
  const ConversionProgress& progress_;
  ModelConfig model_;
  std::vector<Parameter> parameters_;
  std::set<std::string, std::less<>> own_;  // those that the checkpoint has
  std::deque<ManifestTensor> zeros_;
  std::vector<const Parameter*> trained_;
  DcpMetadata metadata_;
  DcpPaths paths_;
  std::unique_ptr<DcpFileWriter> file_;
  uint64_t file_bytes_ = 0;
  std::vector<std::byte> chunk_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

void convert_to_torch(const fs::path& checkpoint, const fs::path& to,
                      const ConversionProgress& progress) {
  const auto reader = open_checkpoint(checkpoint);
  const RunRecord record = record_of(*reader);
  if (record.model.lora.rank > 0) {
    throw UserError(cat("checkpoint '", checkpoint.string(),
                        "' has adapters, of which PyTorch's model has none: tessera export writes "
                        "them for PEFT, or with --merge_adapter 1 the whole model"));
  }
  if (record.schedule.decay_style == DecayStyle::kStep && record.epoch == 0 &&
      record.converted_from.empty()) {
    TESSERA_WARN(cat("checkpoint '", checkpoint.string(),
                     "' does not say in which epoch it is, by which --lr_decay_style step goes: "
                     "PyTorch gets the rate of the first one"));
  }
  const fs::path final = to.has_filename() ? to : to.parent_path();
  std::error_code error;
  if (is_there(final)) {
    if (!fs::is_directory(final, error) || !fs::is_empty(final, error))
      throw UserError(cat("'", final.string(), "' is there and not empty: give a new directory"));
    check_can_be_replaced(final);
  }
  if (final.has_parent_path()) make_directories(final.parent_path());
  remove_leftovers_of(final);
  TemporaryDirectory aside(fs::path(final) += cat(".tmp-", unique_suffix()));
  DcpConversion(*reader, record, aside.path(), progress).run();
  sync_directory(aside.path());
  fs::rename(aside.path(), final, error);  // takes the place of an empty one
  if (error) {
    throw UserError(cat("cannot move '", aside.path().string(), "' to '", final.string(),
                        "': ", error.message()));
  }
  sync_directory(final.has_parent_path() ? final.parent_path() : fs::path("."));
}

void refuse_torch_checkpoint(const fs::path& directory) {
  constexpr int kLevels = 2;  // MODEL/DEVICE, or checkpoints/NAME
  auto found = find_torch_checkpoint(directory, kLevels);
  if (!found) return;
  check_torch_file(*found);
  throw UserError(cat("'", found->string(),
                      "' is a checkpoint of PyTorch's: `tessera checkpoint convert ",
                      found->string(),
                      " DIR` with the options of the model makes one in DIR that "
                      "--resume_from_checkpoint takes; --finetune 1 --pretrained_checkpoint_file ",
                      found->string(), " starts from its weights alone"));
}

}  // namespace tessera
