// What Python answers (bridge.py), and what the page has from its libraries and its first script.

declare function newWorker(query?: string): Worker;
declare var firstWorker: Worker;

// Attributes of an element, and what is in it: see `el` of elements.js.
type Given = Record<string, Scalar | null | undefined | ((event: any) => unknown)>;
type Content = Given | Node | Scalar | null | undefined | Content[];

type Scalar = string | number | boolean;
type Configuration = Record<string, Scalar>;
type Answers = Record<string, any>;

interface Interval {
  low: number;
  high: number;
}

interface Status {
  message: string;
  busy: boolean;
  share?: number;
  loaded: boolean;
}

interface Field {
  group: string;
  words: string;
  letter: string;
  unit: string;
  sentence: string;
  default: Scalar | null;
  choices: string[] | null;
  choice_words: Record<string, string>;
  least: number | null;
  most: number | null;
  whole: boolean;
}

interface Scenario {
  title: string;
  cluster: string;
  tokens: string;
  configuration: Configuration;
}

interface Offer {
  clusters: Record<string, string>;
  usual: string;
  model_words: Record<string, string>;
  models: Record<string, Configuration>;
  schedules: Record<string, string>;
  fields: Record<string, Field>;
  metrics: { name: string; heading: string; factor: number }[];
  scenarios: Scenario[];
  lessons: { id: string; title: string }[];
}

interface QuantityShown {
  name: string;
  heading: string;
  factor: number;
  axis: string;
  shown: string;
}

interface PointAnswer {
  series: string;
  label: string;
  status: string;
  parameters: Configuration;
  metrics: Record<string, number>;
  intervals: Record<string, [number, number]>;
  paper: Record<string, number>;
}

interface Bar {
  value: number;
  bound: number;
  least: boolean;
  needs: string;
  said: string;
}

interface ArtifactAnswer {
  id: string;
  label: string;
  title: string;
  description: string;
  fidelity: string;
  drawn: boolean;
  cluster: string | null;
  elsewhere: boolean;
  command: string;
  quantities: QuantityShown[];
  near: string;
  reading: [mark: "dot" | "ring" | "band", what: string, words: string][];
  table: Scalar[][];
  x: { parameter: string; label: string; scale: string } | null;
  points: PointAnswer[];
  finding: string;
  gap: { x: Scalar; words: string } | null;
  notes: string[];
  dotted: string[];
}

type Claim = Record<"id" | "place" | "verdict" | "kind" | "shown" | "explanation" | "sentence", string> & {
  bar: Bar | null;
};

type Sizes = Record<"p" | "t" | "c" | "d" | "b" | "B" | "layers", number>;

interface Share {
  label: string;
  look: string;
  share: number;
}

interface WhatIfAnswer {
  status: string;
  reason: string | null;
  gpus: number | null;
  iteration_time: number | null;
  intervals: Record<string, Interval> | null;
  run?: Answers;
  sizes: Sizes;
  wrong?: Record<string, string>;
  instead?: object;
  [metric: string]: any;
}

interface Chip {
  name: string;
  on: boolean;
  options: { words: string; changes: Configuration }[];
  at: number;
  reason: string;
}

interface Gain {
  change: string;
  faster_by: number;
  fits: boolean;
}

interface BestRow {
  layout: string;
  differs: string;
  configuration: Configuration;
  iteration_time: number;
  peak_memory: number;
  mine?: boolean;
}

interface BestAnswer {
  groups: { kind: string; words: [string, string]; rows: BestRow[] }[];
  counts: string;
  notes: string[];
}

interface Part {
  name: string;
  label: string;
  look: string;
  size: number;
}

type Row = [name: string, value: string, unit: string, note: string]; // of facts
type Pass = [kind: string, stage: number | null, microbatch: number | null, start: number, end: number];

interface TimelineAnswer {
  iteration_time: number;
  p: number;
  rows: Pass[][];
  stash: [number, number][][];
  unit: string;
  facts: Row[];
}

interface ComparisonAnswer {
  heading: string;
  note: string;
  metrics: string[][];
  ends: number[];
  parts: Part[];
}

interface SweepAnswer {
  field: string;
  label: string;
  points: ({ value: Scalar; status: string; changes: Configuration } & Answers)[];
}

interface Quiz {
  question: string;
  options: [value: string, means: string, why: string][];
  right: number;
  after: string;
}

interface LessonAnswer {
  id: string;
  title: string;
  lede: string;
  label: string;
  stops: string[];
  seen: number;
  take: string;
  formula: string;
  artifact: string;
  pictures: TimelineAnswer[];
  said: string[];
  curve: { quantity: string; values: number[] };
  quizzes: Quiz[];
  full:
    (Record<"title" | "quantity" | "said", string> & Record<"points" | "formula", { x: Scalar; y: number }[]>) | null;
  configurations: Configuration[];
}

interface ClusterNumber {
  name: string;
  words: string;
  shown: [unit: string, factor: number];
  value: number;
  unit: string;
  low: number;
  high: number;
  source: string;
  set_with: string;
}
