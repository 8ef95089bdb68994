#include "backends/cuda/cuda_backend.h"

#include "backends/cuda/collective_kernels.h"
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/product_parts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera::cuda {

void register_kernels(KernelTable& table, Device& device, const MakeProduct& product,
                      NcclCommunicator* communicator, const Prepare& attention, SumOrder order) {
  register_composite_kernels(table, device, product ? in_aligned_parts(product) : product,
                             kHeadRows, attention);
  register_primitive_kernels(table, device);
  register_collective_kernels(table, device, communicator, order);
  register_half_kernels(table, device);
}

CudaBackend::CudaBackend(const Options& options) : options_(options), device_(options.gpu) {
  if (options.cublaslt) {
    try {
      products_.emplace(device_, options.choices);
    } catch (const DeviceError& error) {
      without_cublaslt_ = error.what();
      TESSERA_WARN(cat(without_cublaslt_, "; products run on this program's own kernels, slower"));
    }
  }
  Prepare attention;
  if (options.cudnn) {
    try {
      attention_.emplace(device_);
      attention = [this](const PrepareContext& context) { return attention_->prepare(context); };
    } catch (const DeviceError& error) {
      attention = [reason = std::string(error.what())](const PrepareContext&) { return reason; };
    }
  }
  if (options.control && options.control->world_size() > 1)
    communicator_.emplace(device_, *options.control, options.deadline, options.host);
  if (communicator_ && options.sums == SumOrder::kRanks && options.peers)
    communicator_->reach_peers();
  MakeProduct make;
  if (products_) make = [this](const ProductProblem& problem) { return products_->make(problem); };
  register_kernels(table_, device_, make, communicator_ ? &*communicator_ : nullptr, attention,
                   options.sums);
}

CudaBackend::~CudaBackend() = default;

std::unique_ptr<Executable> CudaBackend::compile(const Graph& graph) { return compile_cuda(graph); }

std::unique_ptr<CudaExecutable> CudaBackend::compile_cuda(const Graph& graph,
                                                          const PlanOptions& options) {
  const auto guard = device_.lock();
  return std::make_unique<CudaExecutable>(device_, plan_program(graph, table_, options),
                                          options_.graphs, options_.cupti,
                                          communicator_ ? &*communicator_ : nullptr);
}

std::string CudaBackend::description() const {
  std::string text =
      cat(device_.description(), ", driver for CUDA ", device_.driver().version_text());
  text += products_ ? cat(", cublasLt ", CublasLt::get().version()) : ", without cublasLt";
  if (const int64_t measured = products_ ? products_->measured_choices() : 0)
    text += cat(" with ", measured, measured == 1 ? " measured product" : " measured products");
  text += attention_ ? cat(", cuDNN ", Cudnn::get().version()) : ", without cuDNN";
  if (communicator_) text += cat(", NCCL ", Nccl::get().version());
  if (communicator_ && !communicator_->network().empty())
    text += cat(" over ", communicator_->network());
  return text;
}

}  // namespace tessera::cuda
