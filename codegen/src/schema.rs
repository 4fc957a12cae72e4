//! The table as written: every key, its type and its place. No rules; those are in `check`.
//!
//! `codegen/README.md` says what each key means.

use crate::diagnostic::{Code, Diagnostic};
use crate::model::words::{
    Activation, ActivationFormat, All2all, Alpha, BiasOrder, BiasType, CheckAt, Checkpoint, Choice,
    ClassKind, Convention, Device, DeviceReason, ElementType, Encoding, End, Evidence, Feature, GemmType,
    GlobalScope, GroupingWord, Half, InputRule, KernelKind, Library, Need, Parameter, PayloadWord,
    QuantizeAt, QuantizeWhen, Rounding, RoutingMethod, ScaleSource, ScaleType, Scope, Stated, Switch,
    TokenType,
};
use crate::read::{ByWord, Named, Node, Part, Read, record};
use crate::source::At;

/// The name of another entry of the table.
pub(crate) type Name = At<String>;

record! {
    /// A whole table.
    struct Table {
        schema: Option<At<usize>>,
        layout: Named<Layout>,
        payload: Named<Payload>,
        order: Named<Order>,
        devices: Named<Vec<At<Device>>>,
        format: Named<Format>,
        scheme: Named<Scheme>,
        setting: Named<Setting>,
        experts: Named<Vec<Part<Experts>>>,
        dropped: Option<Vec<Dropped>>,
        backend: Named<Backend>,
        transport: Named<Transport>,
        oracle: Named<Oracle>,
    }
}

record! {
    /// `[layout.x]`
    struct Layout {
        digits: At<Vec<At<String>>>,
        scale: At<Vec<At<ScaleType>>>,
        pad: Option<At<RowCol>>,
        divides: Option<At<RowCol>>,
        aliases: Option<Vec<At<String>>>,
    }
}

record! {
    /// `[payload.x]`
    struct Payload {
        digits: At<Vec<At<String>>>,
        pad: Option<At<RowCol>>,
        divides: Option<At<RowCol>>,
        word: Option<At<PayloadWord>>,
    }
}

record! {
    /// `[order.x]`
    struct Order {
        digits: At<Vec<At<String>>>,
        first: Option<At<Half>>,
        divides: Option<At<RowCol>>,
    }
}

record! {
    /// `pad = { row = 128, col = 4 }`
    struct RowCol {
        row: Option<At<usize>>,
        col: Option<At<usize>>,
    }
}

record! {
    /// `[format.x]`
    struct Format {
        element: At<ElementType>,
        scale: Option<FormatScale>,
    }
}

record! {
    /// `scale.block = …`, `scale.row = …` or `scale.tensor = …`, and `scale.global = …` of a format
    struct FormatScale {
        block: Option<At<BlockScale>>,
        row: Option<At<WideScale>>,
        tensor: Option<At<WideScale>>,
        global: Option<At<GlobalScaleType>>,
    }
}

record! {
    /// `scale.block = { dtype = "e8m0", rows = 1, cols = 32 }`
    struct BlockScale {
        dtype: At<ScaleType>,
        rows: At<usize>,
        cols: At<usize>,
        zero_point: Option<At<ElementType>>,
    }
}

record! {
    /// `scale.row = { dtype = "f32" }`, `scale.tensor = { dtype = "f32" }`
    struct WideScale {
        dtype: At<ScaleType>,
    }
}

record! {
    /// `scale.global = { dtype = "f32" }`
    struct GlobalScaleType {
        dtype: At<ScaleType>,
    }
}

record! {
    /// `[backend.x]`
    struct Backend {
        vllm: Option<Vllm>,
        facts: Option<Vec<Fact>>,
        kernel: At<KernelKind>,
        weight: Part<Weight>,
        gemm1_input: Part<Gemm1Input>,
        gemm2_input: Option<Part<Gemm2Input>>,
        activation_function: Option<Part<ActivationFunction>>,
        serves: Option<Vec<Name>>,
        devices: Option<Devices>,
        experts: Option<RowExperts>,
        classes: Option<Vec<Name>>,
    }
}

record! {
    /// `vllm = { backend = "…", flags = ["…"] }`
    struct Vllm {
        backend: String,
        flags: Vec<String>,
    }
}

record! {
    /// `{ from = "vllm 0.33", at = "file:line", how = "read" }`
    struct Fact {
        from: String,
        at: String,
        how: Evidence,
    }
}

record! {
    /// `[backend.x.weight]`
    struct Weight {
        format: Name,
        requantize_from: Option<Name>,
        payload: At<VendorOr<Name>>,
        scale: Option<At<WeightScale>>,
        rows: Option<Rows>,
        repeat: Option<Repeat>,
        pad: Option<At<WeightPad>>,
        bias: Option<Bias>,
    }
}

record! {
    /// `scale = { layout = "…", encoding = "as_stored", fill = 0 }`
    struct WeightScale {
        layout: At<VendorOr<Name>>,
        encoding: At<VendorOr<Encoding>>,
        fill: Option<At<u8>>,
        global: Option<At<GlobalScale>>,
    }
}

record! {
    /// `global = { convention = "multiplier", scope = "per_expert" }`
    struct GlobalScale {
        convention: Convention,
        scope: GlobalScope,
    }
}

record! {
    /// `rows = { gate_up = { silu = "…" }, down = "…" }`
    struct Rows {
        gate_up: ByWord<Activation, Name>,
        down: Option<Name>,
    }
}

record! {
    /// `repeat = { row = 128 }`
    struct Repeat {
        row: At<usize>,
    }
}

record! {
    /// `pad = { hidden = 256, intermediate = { gated = 128, plain = 128 }, fill = 0 }`
    struct WeightPad {
        hidden: At<usize>,
        intermediate: Intermediate,
        fill: Option<At<u8>>,
    }
}

record! {
    /// `intermediate = { gated = 128, plain = 128 }`
    struct Intermediate {
        gated: At<usize>,
        plain: At<usize>,
    }
}

record! {
    /// `bias = { dtype = "f32" }`
    struct Bias {
        dtype: BiasType,
        order: Option<BiasOrder>,
    }
}

record! {
    /// `[backend.x.gemm1_input]`
    struct Gemm1Input {
        format: At<Vec<Name>>,
        rounding: Option<At<Rounding>>,
        quantize: Option<At<QuantizeAt>>,
        layout: Option<At<VendorOr<Gemm1Layout>>>,
        prepared_dtype: Option<At<ScaleType>>,
        grouping: Option<At<Grouping>>,
        multiple: Option<Multiple>,
        scale: Option<At<ScaleSource>>,
        global: Option<At<GlobalScale>>,
        alpha: Option<At<Alpha>>,
    }
}

record! {
    /// `[backend.x.gemm2_input]`
    struct Gemm2Input {
        format: At<Vec<Name>>,
        rounding: Option<At<Rounding>>,
        layout: Option<At<VendorOr<Gemm2Layout>>>,
        scale: Option<At<ScaleSource>>,
        global: Option<At<GlobalScale>>,
        alpha: Option<At<Alpha>>,
    }
}

record! {
    /// `layout = { prepared = "…", kernel = "…" }`
    struct Gemm1Layout {
        prepared: Name,
        kernel: Name,
    }
}

record! {
    /// `layout = { kernel = "…" }`
    struct Gemm2Layout {
        kernel: Name,
    }
}

record! {
    /// `multiple = { hidden = 256 }`
    struct Multiple {
        hidden: At<usize>,
    }
}

record! {
    /// `{ ranges = { start_multiple = 128 } }`
    struct Ranges {
        start_multiple: At<usize>,
    }
}

record! {
    /// `[backend.x.activation_function]`
    struct ActivationFunction {
        honours: At<ByWord<Activation, Vec<At<Parameter>>>>,
    }
}

record! {
    /// `[scheme.x]`
    struct Scheme {
        weight: Name,
        input: Option<SchemeInput>,
    }
}

record! {
    /// `input = { format = "…", scale = "static" }`
    struct SchemeInput {
        format: Name,
        scale: Option<At<ScaleSource>>,
    }
}

record! {
    /// `[setting.x]`
    struct Setting {
        variable: String,
        default: Switch,
    }
}

record! {
    /// `[[dropped]]`
    struct Dropped {
        name: String,
        until: String,
        instead: String,
    }
}

record! {
    /// `[[experts.x]]`, `[[backend.x.experts]]`
    struct Experts {
        class: String,
        kind: Option<ClassKind>,
        when: Option<When>,
        offers: Option<Vec<Feature>>,
        requires: Option<Requires>,
        refuse: Option<Vec<Refusal>>,
    }
}

record! {
    /// `requires = { … }`
    struct Requires {
        devices: Option<Devices>,
        device_reason: Option<DeviceReason>,
        library: Option<Vec<Library>>,
        setting: Option<Settings>,
        activation: Option<Vec<Activation>>,
        routing: Option<Vec<RoutingMethod>>,
        router_dtype: Option<Vec<TokenType>>,
        activation_format: Option<ActivationFormat>,
        all2all: Option<Vec<All2all>>,
        all2all_refused: Option<Vec<All2all>>,
        all2all_use: Option<Need>,
        data_parallel_max: Option<usize>,
        expert_parallel: Option<Need>,
        sequence_parallel: Option<Need>,
        gemm_type: Option<GemmType>,
        hidden_multiple: Option<usize>,
    }
}

record! {
    /// `{ when = { … }, reason = "…", check = "first" }`
    struct Refusal {
        when: When,
        reason: Stated,
        check: Option<CheckAt>,
        row: Option<Name>,
    }
}

record! {
    /// `[transport.x]`
    struct Transport {
        scope: Option<At<Scope>>,
        all2all: Option<Vec<All2all>>,
        grouping: GroupingWord,
        devices: Option<Devices>,
        hidden_sizes: Option<Vec<usize>>,
        facts: Option<Vec<Fact>>,
        payload: Option<At<Vec<TransportPayload>>>,
    }
}

record! {
    /// `[[transport.x.payload]]`
    struct TransportPayload {
        format: Name,
        wire: Option<Name>,
        quantize: Option<At<QuantizeWhen>>,
        hidden_multiple: Option<usize>,
        refuse: Option<At<String>>,
    }
}

record! {
    /// `[oracle.x]`, one order an engine
    struct Oracle {
        vllm: Option<EngineOrder>,
        native: Option<EngineOrder>,
    }
}

record! {
    /// `[oracle.x.vllm]`
    struct EngineOrder {
        order: Vec<Name>,
        explicit: Option<Vec<Name>>,
        input: Option<InputRule>,
        ignored_names: Option<Vec<String>>,
        refuse: Option<Vec<Refusal>>,
        reorder: Option<Vec<Reorder>>,
    }
}

record! {
    /// `[[oracle.x.vllm.reorder]]`
    struct Reorder {
        when: When,
        r#move: Option<Name>,
        before: Option<Name>,
        after: Option<Name>,
        to: Option<At<End>>,
        drop: Option<Vec<Name>>,
        only: Option<Vec<Name>>,
        force: Option<Vec<Name>>,
    }
}

record! {
    /// `when = { device = ["sm_90"] }`
    struct When {
        device: Option<Devices>,
        activation: Option<Vec<Activation>>,
        scheme: Option<Vec<Name>>,
        routing: Option<Vec<RoutingMethod>>,
        all2all: Option<Vec<All2all>>,
        activation_format: Option<ActivationFormat>,
        token_dtype: Option<Vec<TokenType>>,
        checkpoint: Option<Vec<Checkpoint>>,
        group: Option<Vec<Group>>,
        choice: Option<Choice>,
        name: Option<Vec<String>>,
        model_type: Option<Vec<String>>,
        has: Option<Vec<Feature>>,
        lacks: Option<Vec<Feature>>,
        library: Option<Vec<Library>>,
        library_missing: Option<Vec<Library>>,
        setting: Option<Settings>,
        set: Option<Vec<Name>>,
        unset: Option<Vec<Name>>,
        hidden: Option<Range>,
        intermediate: Option<Range>,
        experts: Option<Range>,
        data_parallel: Option<Range>,
        expert_parallel: Option<Range>,
    }
}

record! {
    /// `experts = { min = 993 }`
    struct Range {
        min: Option<usize>,
        max: Option<usize>,
        not_multiple: Option<usize>,
    }
}

/// `setting = { aiter = "on" }`, by the names of `[setting.x]`.
#[derive(Debug, Clone)]
pub(crate) struct Settings(pub(crate) Vec<(Name, Switch)>);

impl Read for Settings {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let named = Named::<Switch>::read(node, findings)?;
        named.is_complete().then_some(Self(named.entries))
    }
}

/// Elements that share a scale; `"channel"` is all of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(pub(crate) usize);

impl Read for Group {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        if node.get_ref().as_str() == Some("channel") {
            return Some(Self(0));
        }
        usize::read(node, findings).map(Self)
    }
}

/// The classes of a row: the name of `[[experts.x]]`, or a list of its own.
#[derive(Debug, Clone)]
pub(crate) enum RowExperts {
    Named(Name),
    Own(Vec<Part<Experts>>),
}

impl Read for RowExperts {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        if node.get_ref().is_str() {
            Name::read(node, findings).map(Self::Named)
        } else {
            Vec::read(node, findings).map(Self::Own)
        }
    }
}

/// A value, or `{ vendor = "why" }` where only the vendor's library knows.
#[derive(Debug, Clone)]
pub(crate) enum VendorOr<T> {
    Is(T),
    Vendor(String),
}

record! {
    /// `{ vendor = "why" }`
    struct Vendor {
        vendor: String,
    }
}

impl<T: Read> Read for VendorOr<T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let vendor = node.get_ref().as_table().is_some_and(|table| table.contains_key("vendor"));
        if vendor {
            Vendor::read(node, findings).map(|vendor| Self::Vendor(vendor.vendor))
        } else {
            T::read(node, findings).map(Self::Is)
        }
    }
}

/// `["sm_90"]`, or the name of a `[devices]` group.
#[derive(Debug, Clone)]
pub(crate) enum Devices {
    List(Vec<At<Device>>),
    Group(Name),
}

impl Read for Devices {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        if node.get_ref().is_str() {
            Name::read(node, findings).map(Self::Group)
        } else {
            Vec::read(node, findings).map(Self::List)
        }
    }
}

/// How rows are grouped by expert: a word, or a table of one key.
#[derive(Debug, Clone)]
pub(crate) enum Grouping {
    Tokens,
    Slots,
    Ranges(Ranges),
    SpreadRanges(Ranges),
}

record! {
    /// `grouping = { ranges = { start_multiple = 128 } }`
    struct GroupingTable {
        ranges: Option<Ranges>,
        spread_ranges: Option<Ranges>,
    }
}

impl Read for Grouping {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        if node.get_ref().is_str() {
            return GroupingWord::read(node, findings).map(|word| match word {
                GroupingWord::Tokens => Self::Tokens,
                GroupingWord::Slots => Self::Slots,
            });
        }
        let found = GroupingTable::read(node, findings)?;
        match (found.ranges, found.spread_ranges) {
            (Some(ranges), None) => Some(Self::Ranges(ranges)),
            (None, Some(ranges)) => Some(Self::SpreadRanges(ranges)),
            _ => {
                let message = "a grouping is one of `ranges` and `spread_ranges`";
                findings.push(Diagnostic::new(Code::E0103, node.span(), message).help(
                    "write `{ ranges = { start_multiple = … } }`, or the other, or \"tokens\" or \"slots\"",
                ));
                None
            }
        }
    }
}
