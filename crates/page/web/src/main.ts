// Starts the page with the document that the file holds.
import './style.css';
import { mount } from 'svelte';
import App from './App.svelte';
import type { Document } from './document';

const json = document.getElementById('apex-document')?.textContent ?? '';
const target = document.getElementById('page')!;
target.replaceChildren();
mount(App, { target, props: { doc: JSON.parse(json) as Document } });
