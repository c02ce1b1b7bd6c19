#include "checks/provenance.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "checks/dataflow.hpp"
#include "checks/last_writers.hpp"
#include "checks/order.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "memory/layer_block.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::program {
namespace {

/// What hands a layer its input, or the gradient of its output.
struct Source {
  std::optional<int> layer;  // absent: it is received from another stage
  Maker maker;
  int chunk = 0;                // that receives it
  bool is_activations = false;  // that are received, or gradients
};

class Player {
 public:
  explicit Player(const Program& program) : program_(program), order_(program) {
    for (const Block& block : program.blocks) {
      flows_.push_back(dataflow_of(block));
      if (!flows_.back().errors.empty() && !error_)
        error_ = fmt::format("stage {}: layer '{}': {}", program.role.stage, block.name,
                             flows_.back().errors.front());
    }
  }

  std::optional<std::string> run() {
    for (index_ = 0; index_ < static_cast<int>(program_.instances.size()) && !error_; ++index_)
      play();
    return error_;
  }

 private:
  struct Read {
    std::string reader;  // operation
    std::string what;
    Address address;
  };

  const OperationInstance& now() const { return program_.instances[at(index_)]; }
  const Block& block_of_layer(int layer) const { return block_of(program_, layer); }
  const Dataflow& flow_of(int layer) const { return flows_[at(program_.layers[at(layer)].block)]; }

  void play() {
    const Operation& operation = operation_of(program_, now());
    const bool backward = now().operation.backward;
    if (const auto* pass = std::get_if<LayerPassOp>(&operation.work)) {
      for (const int i : pass->operations) play_layer_operation(backward, i);
    } else if (now().operation.block) {
      play_layer_operation(backward, now().operation.index);
    } else if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
      play_peer(operation, *peer);
    } else if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work)) {
      if (flat->bucket) play_flat(*flat);
      play_writes();
    } else {
      play_step(std::get<StepOp>(operation.work));
    }
  }

  void play_flat(const FlatCollectiveOp& flat) {
    if (sums_gradients(flat)) check_complete(flat);
    const bool of_weights =
        flat.region == Region::GatheredWeights || flat.region == Region::ResidentWeights;
    if (of_weights && program_.plan.offload_parameters) expect_fetched(flat);
  }

  void play_writes() {
    for (const Address& write : footprint(program_, now()).writes)
      writers_.write(write, {index_, std::nullopt});
  }

  void play_step(const StepOp& step) {
    if (step.work == StepWork::StoreActivations || step.work == StepWork::FetchActivations) {
      const ActivationCopy copy = activation_copy(program_, now(), step);
      const bool fetch = step.work == StepWork::FetchActivations;
      return writers_.copy(fetch ? copy.on_host : copy.on_device,
                           fetch ? copy.on_device : copy.on_host);
    }
    if (step.work == StepWork::AccumulateGradients) check_accumulation(step);
    play_writes();
    if (step.work != StepWork::CompressGradients) return;
    for (const Address& read : footprint(program_, now()).reads)  // the bucket may be filled anew
      if (read.region == Region::UnreducedBuckets) writers_.write(read, {index_, std::nullopt});
  }

  // -------------------------------------------------------------- layers

  void play_layer_operation(bool backward, int index) {
    const Block& block = block_of_layer(*now().layer);
    const Operation& operation = (backward ? block.backward : block.forward)[at(index)];
    const auto& makers = flow_of(*now().layer).of(backward)[at(index)];
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      check_operand(operation, operation.inputs[i], makers[i]);
    for (const ValueId output : operation.outputs) {
      const Address address = address_of(program_, now(), output);
      if (storage_of(block, output) == Storage::Gradient) check_gradient(operation, address);
      writers_.write(address, {index_, index});
    }
  }

  static Storage storage_of(const Block& block, ValueId id) {
    return block.values[at(root_of(block, id))].storage;
  }

  void check_operand(const Operation& reader, ValueId id, const std::optional<Maker>& maker) {
    const int layer = *now().layer;
    const Block& block = block_of_layer(layer);
    const Storage storage = storage_of(block, id);
    const Read read{reader.name, fmt::format("{} of layer {}", block.values[at(id)].name, layer),
                    address_of(program_, now(), id)};
    if (maker) {
      const bool kept_for_step = storage == Storage::QuantizedWeight;
      return expect(read, {.layer = layer, .maker = *maker},
                    kept_for_step ? std::nullopt : now().microbatch);
    }
    switch (storage) {
      case Storage::LayerInput:
        return expect(read, input_of(layer), now().microbatch);
      case Storage::LayerOutputGrad:
        return expect(read, output_gradient_of(layer), now().microbatch);
      case Storage::Parameter:
        return expect_weights(read, block.values[at(root_of(block, id))].index);
      case Storage::BatchIds:
      case Storage::BatchTargets:
      case Storage::BatchPositions:
      case Storage::BatchKeyRanges:
      case Storage::BatchOrder:
        return expect_if(read, [&](const Writer& writer) {
          const auto* step = work_of<StepOp>(writer);
          return step != nullptr && step->work == StepWork::LoadBatch;
        });
      default:
        return;
    }
  }

  Source input_of(int layer) const {
    const int own = program_.layers[at(layer)].chunk;
    const Chunk& chunk = program_.chunks[at(own)];
    if (layer > chunk.first_layer) return output_of(layer - 1);
    if (const auto before = chunk_before(program_, own))
      return output_of(program_.chunks[at(*before)].end_layer - 1);
    return {.chunk = own, .is_activations = true};
  }
  Source output_of(int layer) const {
    const std::optional<Maker>& maker = flow_of(layer).output;
    require_invariant(maker.has_value(), "a layer before another one has no output");
    return {.layer = layer, .maker = *maker};
  }

  Source output_gradient_of(int layer) const {
    const int own = program_.layers[at(layer)].chunk;
    if (layer + 1 < program_.chunks[at(own)].end_layer) return input_gradient_of(layer + 1);
    if (const auto after = chunk_after(program_, own))
      return input_gradient_of(program_.chunks[at(*after)].first_layer);
    return {.chunk = own};
  }
  /// A layer that changes nothing of the stream hands on what it was given.
  Source input_gradient_of(int layer) const {
    const std::optional<Maker>& maker = flow_of(layer).input_gradient;
    return maker ? Source{.layer = layer, .maker = *maker} : output_gradient_of(layer);
  }

  void play_peer(const Operation& operation, const PeerOp& peer) {
    const Address address = peer_address(program_, now());
    if (!peer.send) return writers_.write(address, {index_, std::nullopt});
    const Chunk& chunk = program_.chunks[at(now().chunk)];
    const bool forward = carries_activations(operation.lane);
    expect({operation.name, forward ? "the chunk's output" : "the gradient of its input", address},
           forward ? output_of(chunk.end_layer - 1) : input_gradient_of(chunk.first_layer),
           now().microbatch);
  }

  // -------------------------------------------------------------- weights and gradients

  void expect_weights(const Read& read, int index) {
    const int global = layer_of(program_, now()).parameters[at(index)];
    const int number = program_.parameters[at(global)].bucket;
    const Bucket& bucket = program_.buckets[at(number)];
    const bool gathered =
        bucket.shards > 1 || holds_owned_part(program_.plan, Region::Weights, bucket);
    if (!gathered && !program_.plan.offload_parameters)
      return writers_.each(read.address, [&](const std::optional<Writer>& writer) {
        if (writer) fail(read, writer);
      });
    expect_if(read, [&](const Writer& writer) {
      if (const auto* flat = work_of<FlatCollectiveOp>(writer))
        return flat->bucket == number && flat->collective.collective == Collective::AllGather;
      const auto* step = work_of<StepOp>(writer);
      return step != nullptr && !gathered && step->work == StepWork::FetchWeights &&
             step->bucket == number;
    });
  }

  /// What a rank owns of a bucket has come from the host to where it is gathered.
  void expect_fetched(const FlatCollectiveOp& flat) {
    const Read read{operation_of(program_, now()).name, "the rank's part of the weights",
                    flat_places(program_, now(), flat, {}).part};
    expect_if(read, [&](const Writer& writer) {
      const auto* step = work_of<StepOp>(writer);
      return step != nullptr && step->work == StepWork::FetchWeights && step->bucket == flat.bucket;
    });
  }

  bool is_layer_gradient(const std::optional<Writer>& writer) const {
    return writer && writer->operation.has_value();
  }

  void check_gradient(const Operation& operation, const Address& address) {
    writers_.each(address, [&](const std::optional<Writer>& writer) {
      if (now().accumulate == is_layer_gradient(writer) || error_) return;
      const std::string last = writer ? text_at(writer->instance) : "nothing";
      error_ = now().accumulate
                   ? fmt::format("{} adds to a gradient that {} wrote last", reader(operation.name),
                                 last)
                   : fmt::format("{} writes over the gradient of {}", reader(operation.name), last);
    });
  }

  static bool sums_gradients(const FlatCollectiveOp& flat) {
    return (flat.region == Region::Gradients || flat.region == Region::UnreducedBuckets) &&
           flat.collective.group != Group::KvCopies;
  }

  /// What is added of a micro-batch was summed over its ranks in this task; the first one of a step
  /// overwrites.
  void check_accumulation(const StepOp& step) {
    const Footprint touched = footprint(program_, now());
    for (const Address& address : touched.reads)
      expect_if(
          {operation_of(program_, now()).name, "the sum of a micro-batch's gradients", address},
          [&](const Writer& writer) {
            const auto* flat = work_of<FlatCollectiveOp>(writer);
            return flat != nullptr && flat->bucket == step.bucket &&
                   program_.instances[at(writer.instance)].task == now().task;
          });
    for (const Address& address : touched.writes)
      writers_.each(address, [&](const std::optional<Writer>& writer) {
        if (now().accumulate == writer.has_value() || error_) return;
        error_ = fmt::format("{} {} gradients of other micro-batches",
                             reader(operation_of(program_, now()).name),
                             now().accumulate ? "adds to no" : "writes over");
      });
  }

  /// All trained parameters of the bucket have been written; streamed ones in this task.
  void check_complete(const FlatCollectiveOp& flat) {
    const Bucket& bucket = program_.buckets[at(*flat.bucket)];
    const Address all = flat_places(program_, now(), flat, {}).all;
    const std::int64_t size = element_bytes(program_, flat.region);
    if (all.bytes != bucket.range.size() * size) return;  // a part that a sum has left
    for (const Parameter& parameter : program_.parameters) {
      if (!parameter.trained || parameter.bucket != *flat.bucket) continue;
      Address own = all;
      own.offset += (parameter.offset - bucket.range.begin) * size;
      own.bytes = parameter.elements() * size;
      const Read read{operation_of(program_, now()).name, parameter.name + ".grad", own};
      expect_if(read, [&](const Writer& writer) {
        const auto* sum = work_of<FlatCollectiveOp>(writer);
        if (sum != nullptr && sum->collective.group == flat.collective.group) return false;
        const bool streamed = flat.region == Region::UnreducedBuckets;
        return !streamed || program_.instances[at(writer.instance)].task == now().task;
      });
    }
  }

  // -------------------------------------------------------------- verdicts

  template <class Work>
  const Work* work_of(const Writer& writer) const {
    return std::get_if<Work>(&operation_of(program_, program_.instances[at(writer.instance)]).work);
  }

  bool is_from(const Writer& writer, const Source& source, std::optional<int> microbatch) const {
    const OperationInstance& instance = program_.instances[at(writer.instance)];
    if (microbatch && instance.microbatch != microbatch) return false;
    if (source.layer)
      return instance.layer == source.layer && writer.operation == source.maker.operation &&
             instance.operation.backward == source.maker.backward;
    const auto* peer = work_of<PeerOp>(writer);
    return peer != nullptr && !peer->send && instance.chunk == source.chunk &&
           carries_activations(operation_of(program_, instance).lane) == source.is_activations;
  }

  void expect(const Read& read, const Source& source, std::optional<int> microbatch) {
    expect_if(read, [&](const Writer& writer) { return is_from(writer, source, microbatch); });
  }

  template <class Accepts>
  void expect_if(const Read& read, Accepts accepts) {
    writers_.each(read.address, [&](const std::optional<Writer>& writer) {
      if (!writer || !accepts(*writer)) return fail(read, writer);
      if (!order_.is_before(writer->instance, index_) && !error_)
        error_ = fmt::format("{} reads {} and does not wait for {}", reader(read.reader), read.what,
                             text_at(writer->instance));
    });
  }

  void fail(const Read& read, const std::optional<Writer>& writer) {
    if (error_) return;
    if (!writer) {
      error_ = fmt::format("{} reads {} before it is made", reader(read.reader), read.what);
      return;
    }
    const auto& other = program_.instances[at(writer->instance)].microbatch;
    const bool stranger = other && now().microbatch && *other != *now().microbatch;
    error_ = fmt::format("{} reads what {} has overwritten: {}, where {} wrote last",
                         reader(read.reader),
                         stranger ? fmt::format("micro-batch {}", *other) : "another operation",
                         read.what, text_at(writer->instance));
  }

  std::string reader(const std::string& name) const {
    return fmt::format("stage {}: {} of micro-batch {} (chunk {})", program_.role.stage, name,
                       now().microbatch.value_or(0), now().chunk);
  }
  std::string text_at(int instance) const {
    const OperationInstance& found = program_.instances[at(instance)];
    return text_of(program_, found) +
           (found.layer ? fmt::format(" in layer {}", *found.layer) : "");
  }

  const Program& program_;
  Order order_;
  std::vector<Dataflow> flows_;  // by block
  LastWriters writers_;
  int index_ = 0;
  std::optional<std::string> error_;
};

}  // namespace

std::optional<std::string> provenance_error(const Program& program) {
  return Player(program).run();
}

}  // namespace meshplan::program
